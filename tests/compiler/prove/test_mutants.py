"""Single-node edits of scheduled programs: what is proved must be equal, by an execution without fields."""

from __future__ import annotations

import random

import pytest
from attrs import evolve

from kdsl.check.library import load
from kdsl.data import data_root
from kdsl.lower.lowering import Lowering
from kdsl.prove.cases import cases_of
from kdsl.prove.jobs import rule_jobs
from kdsl.prove.lowered import pins_of, prove_functions, scheduled_functions
from kdsl.prove.mutants import Mutations, same_numbers
from kdsl.prove.program import Program
from kdsl.prove.prover import Subject

from ..workshop import library_of

LIBRARY = load(sorted((data_root() / "rules").rglob("*.kds")))
OPTIONS = {
    "cpu_split": ({"gate": "bounded", "use_qk_l2norm_in_kernel": True}, {"gate": "precomputed"}),
    "cpu_stream": ({"gate": "softplus", "use_qk_l2norm_in_kernel": True}, {"gate": "bounded"}),
}
SAMPLED = {"cpu_split": 30, "cpu_stream": 30}


def programs(rule: str):
    """(plan, functions) of a rule under each of the options above."""
    for settings in OPTIONS[rule]:
        job = next(
            rule_jobs(
                LIBRARY,
                LIBRARY.rules[rule],
                "cpu",
                every_point=False,
                sizes={"K": 16, "V": 16},
                settings=settings,
            )
        )
        plan = job.plan()
        yield plan, scheduled_functions(Lowering(plan))


def judged(plan, functions, mutants):
    """(mutant, proof, program) of each; one trial, since luck has a chance of one in a million."""
    cases = cases_of(plan.operator, plan.settings)
    for number, function in enumerate(functions):
        mutations = Mutations(function.func)
        for mutant in mutants(mutations):
            changed = [*functions]
            changed[number] = evolve(function, func=mutations.make(mutant))
            proof = prove_functions(plan, changed, cases, trials=1, fresh=True)
            yield mutant, proof, changed


def wrongly_proved(plan, functions, mutants):
    options = plan.specialization.options
    cases = cases_of(plan.operator, plan.settings)
    subject = Subject("", plan.operator, plan.settings, options, Program.of(functions, pins_of(plan)), cases)
    tally, wrong = {}, []
    for mutant, proof, changed in judged(plan, functions, mutants):
        tally[proof.verdict] = tally.get(proof.verdict, 0) + 1
        if proof.proved and not same_numbers(subject, Program.of(changed, pins_of(plan)), draws=3):
            wrong.append(mutant.label)
    return tally, wrong


@pytest.mark.parametrize("rule", OPTIONS)
def test_sampled_mutants(rule):
    plan, functions = next(programs(rule))
    tally, wrong = wrongly_proved(plan, functions, lambda m: m.sample(SAMPLED[rule], random.Random(7)))
    assert not wrong
    assert sum(tally.values()) == SAMPLED[rule] and tally.get("field", 0) <= SAMPLED[rule] // 5


@pytest.mark.slow
@pytest.mark.parametrize("rule", OPTIONS)
def test_every_mutant(rule):
    total = 0
    for plan, functions in programs(rule):
        tally, wrong = wrongly_proved(plan, functions, lambda m: list(m.every()))
        assert not wrong
        total += sum(tally.values())
    assert total >= 400


def test_a_chunk_too_many_takes_the_workspace_behind_it(tmp_path):
    """`length + 15` made `length + 17` where a chunk leaves: for a length of 15 the second chunk has no rows, and its
    place in the workspace is that of the next sequence. Of a packed grid it is nobody's."""
    text = LIBRARY.rules["mma_bounded"].declaration.span.text
    counted = text.replace("grid { x : n, c packed; y : h }", "grid { x : c; y : h; z : n }")
    assert counted != text
    library = library_of(tmp_path, counted)
    rules = rule_jobs(library, library.rules["mma_bounded"], "sm_90a", every_point=False, settings={"gate": "bounded"})
    plan = next(rules).plan()
    functions = scheduled_functions(Lowering(plan))
    leaves = "v_c >= T.Div(length + T.int64(16) {} T.int64(1), T.int64(16))"
    text = str(functions[0].func)
    assert text.count(leaves.format("-")) == 1
    mutations = Mutations(functions[0].func)
    signs = [mutant for mutant in mutations.every() if mutant.kind == "Sub becomes Add"]
    edited = (mutations.make(mutant) for mutant in signs)
    wrong = next(func for func in edited if leaves.format("+") in str(func))
    changed = [evolve(functions[0], func=wrong), *functions[1:]]
    proof = prove_functions(plan, changed, cases_of(plan.operator, plan.settings), trials=1, fresh=True)
    assert proof.verdict == "rejected"
    assert "fill their chunks" in proof.difference.case
