"""The stage that a rejection names, also where memory holds one tensor after the other."""

from __future__ import annotations

import functools

import pytest
from attrs import evolve

from kdsl.check.library import load
from kdsl.data import data_root
from kdsl.lower.lowering import Lowering
from kdsl.prove.cases import asked
from kdsl.prove.jobs import rule_jobs
from kdsl.prove.lowered import prove_functions, scheduled_functions
from kdsl.prove.mutants import Mutant, Mutations

SKIPPED = ("span", "ty", "reads", "writes", "annotations", "match_buffers")


@functools.cache
def scheduled(rule: str):
    library = load(sorted((data_root() / "rules").rglob("*.kds")))
    plan = next(iter(rule_jobs(library, library.rules[rule], "sm_90a", every_point=False))).plan()
    return plan, scheduled_functions(Lowering(plan))


def values_in(mutations: Mutations, stage: str):
    """The nodes below the sblock of a stage that are products of floats."""
    nodes = mutations.nodes
    stack = [
        n["data"]["body"]
        for n in nodes
        if n.get("type") == "s_tir.SBlock" and nodes[n["data"]["name_hint"]].get("data") == stage
    ]
    assert stack, f"no sblock {stage}"
    while stack:
        i = stack.pop()
        data = nodes[i].get("data")
        if nodes[i].get("type") == "prim.Mul" and "float" in str(nodes[data["ty"]]):
            yield i
        if isinstance(data, dict) and nodes[i].get("type") not in ("ir.IntImm", "ir.FloatImm", "ir.Var"):
            stack += [v for k, v in data.items() if isinstance(v, int) and v and k not in SKIPPED]
        elif isinstance(data, list):
            stack += [v for v in data if isinstance(v, int)]


@pytest.mark.parametrize("stage", ["decay_k", "decay_q", "restore_k", "mask_kk"])
def test_a_product_that_becomes_a_sum(stage):
    plan, functions = scheduled("mma_bounded")
    mutations = Mutations(functions[0].func)
    node = next(iter(values_in(mutations, stage)))
    edit = Mutant("Mul becomes Add", node, ("type", "prim.Add"))
    changed = [evolve(functions[0], func=mutations.make(edit)), *functions[1:]]
    cases = asked(plan.operator, plan.settings, {"T": 20})
    proof = prove_functions(plan, changed, cases, trials=1, fresh=True, further=False)
    assert proof.verdict == "rejected" and proof.difference.stage == stage, proof.found
