"""Negative controls: what each part of the prover is there for is found, and nothing is found without it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from attrs import evolve

from kdsl.check.library import load
from kdsl.data import data_root
from kdsl.lower.intrinsics.matrix import register
from kdsl.lower.lowering import Lowering
from kdsl.lower.tvm import Schedule, load_json, s_tir, save_json
from kdsl.plan.cuda.products import intrinsic_name
from kdsl.prove import fields, prover
from kdsl.prove.cases import cases_of
from kdsl.prove.forms import covering, plan_of_form
from kdsl.prove.intrinsics import description_of
from kdsl.prove.jobs import rule_jobs
from kdsl.prove.lowered import further_cases, pins_of, plain_functions, prove_functions, scheduled_functions
from kdsl.prove.program import Program
from kdsl.prove.refusal import NoMeaning

CHUNK, DECODE = "kda.chunk_forward", "kda.decode"


@pytest.fixture(scope="module")
def chunk():
    """The pairwise, split graph of the chunk operator as a plan and its only function."""
    library = load()
    wanted = {"decay": "pairwise", "chain": "split"}
    form = next(f for f in covering(library.operators[CHUNK]) if wanted.items() <= f.form.items())
    plan = plan_of_form(library, form)
    return plan, plain_functions(Lowering(plan))[0]


def verdict(chunk, function, trials=1):
    plan, _ = chunk
    return prove_functions(
        plan, [function], cases_of(plan.operator, plan.settings), trials=trials, fresh=True
    )


def rewritten(function, change):
    """The function after `change(nodes, name)`; `name(i)` is the name of a variable or block."""
    document = json.loads(save_json(function.func))
    nodes = document["nodes"]

    def text(i):
        return nodes[i]["data"] if isinstance(nodes[i], dict) else None

    change(nodes, text)
    return evolve(function, func=load_json(json.dumps(document)))


def block(nodes, text, name):
    return next(
        n["data"] for n in nodes if n.get("type") == "s_tir.SBlock" and text(n["data"]["name_hint"]) == name
    )


def variable(nodes, text, name):
    return next(
        i for i, n in enumerate(nodes) if n.get("type") == "ir.Var" and text(n["data"]["name"]) == name
    )


def test_the_program_itself(chunk):
    assert verdict(chunk, chunk[1]).proved


def test_taint_an_element_that_is_never_written(chunk):
    """One row of the keys is left out: without the bit its memory would hold some number."""

    def change(nodes, text):
        realize = next(
            n["data"]
            for n in nodes
            if n.get("type") == "s_tir.SBlockRealize"
            and text(nodes[n["data"]["block"]]["data"]["name_hint"]) == "unit_k"
        )
        variables = nodes[nodes[realize["block"]]["data"]["iter_vars"]]["data"]
        row = nodes[variables[0]]["data"]["var"]
        zero = next(
            i
            for i, n in enumerate(nodes)
            if n.get("type") == "ir.IntImm"
            and n["data"]["value"] is not None
            and nodes[n["data"]["ty"]] == nodes[nodes[row]["data"]["ty"]]
        )
        loop = nodes[realize["iter_values"]]["data"][0]
        boolean = nodes[realize["predicate"]]["data"]["ty"]
        nodes.append({"type": "prim.GT", "data": {"span": 0, "ty": boolean, "a": loop, "b": zero}})
        realize["predicate"] = len(nodes) - 1

    proof = verdict(chunk, rewritten(chunk[1], change))
    assert proof.verdict == "rejected" and "never" in proof.difference.what + proof.difference.output, (
        proof.found
    )


def test_an_index_outside(chunk):
    def change(nodes, text):
        data = block(nodes, text, "decay_total")
        store = nodes[data["body"]]["data"]
        load = nodes[store["value"]]["data"]
        indices = nodes[nodes[load["indices"]]["data"][0]]["data"]
        nodes.append({"type": "int", "data": 16})
        nodes.append({"type": "ir.IntImm", "data": {**indices, "value": len(nodes) - 1}})
        last = nodes[load["indices"]]["data"][1:]
        nodes.append({"type": "ffi.Array", "data": [len(nodes) - 1, *last]})
        load["indices"] = len(nodes) - 1

    proof = verdict(chunk, rewritten(chunk[1], change))
    assert (
        proof.verdict == "rejected"
        and "outside its shape" in proof.found
        and proof.difference.stage == "decay_total"
    )
    assert "index 16 of 16" in proof.found


def test_an_input_is_written(chunk):
    """The output is stored over v, from where nothing reads it again."""

    def change(nodes, text):
        v = variable(nodes, text, "v")
        data = block(nodes, text, "write_o")
        body = nodes[data["body"]]
        while body["type"] != "tirx.BufferStore":
            body = nodes[body["data"].get("then_case", body["data"].get("body"))]
        body["data"]["buffer"] = v

    proof = verdict(chunk, rewritten(chunk[1], change))
    assert proof.verdict == "rejected" and "`v` is written, but it is no output" in proof.found


def test_strides_that_are_ignored(chunk):
    """Two strides of o exchanged: right for no layout but square ones."""
    _, function = chunk
    swapped = {2: 3, 3: 2}
    arguments = tuple(
        evolve(a, axis=swapped.get(a.axis, a.axis)) if (a.kind, a.name) == ("stride", "o") else a
        for a in function.arguments
    )
    assert verdict(chunk, evolve(function, arguments=arguments)).verdict == "rejected"


def test_threads_in_reverse_order(chunk):
    """A scan on parallel threads: right in one order."""

    def change(nodes, text):
        for n in nodes:
            if n.get("type") == "tirx.For":
                body = nodes[n["data"]["body"]]
                if body.get("type") == "s_tir.SBlockRealize":
                    inner = nodes[body["data"]["block"]]["data"]
                    if text(inner["name_hint"]) == "decay_sum_row":
                        n["data"]["kind"] = 1

    proof = verdict(chunk, rewritten(chunk[1], change))
    assert proof.verdict == "rejected" and "reverse order" in proof.difference.what + proof.difference.output


def test_a_small_field_proves_what_the_large_one_rejects(prove_edited, monkeypatch):
    """x^23 = x in Z_23: the bound, not luck, is what makes a proof."""
    edit = [("qx[i, d] * scale", "(qx[i, d] ** 8 * qx[i, d] ** 8 * qx[i, d] ** 7) * scale")]
    assert prove_edited(CHUNK, edit, {"decay": "pairwise"}, {}).verdict == "rejected"
    monkeypatch.setattr(fields, "draw_chain", lambda rng, depth, bits: (23, 11))
    monkeypatch.setattr(prover, "trial_bound", lambda *degrees: 1e-9)
    assert prove_edited(CHUNK, edit, {"decay": "pairwise"}, {}, fresh=True).proved


def test_the_degree_is_computed(prove_edited):
    """A seventh power in the program asks for a larger degree."""
    plain = prove_edited(CHUNK, [], {"decay": "pairwise"}, {}, trials=1)
    edit = [("qx[i, d] * scale", "qx[i, d] ** 7 * scale * (1.0 / (qx[i, d] ** 6))")]
    higher = prove_edited(CHUNK, edit, {"decay": "factored"}, {}, trials=1)
    assert plain.cases[0].degree > 50 and higher.verdict in ("field", "rejected")


# ---- sizes that the program tells apart ----
FORGETS = "where given(initial_state) and {} else 0.0"


@pytest.mark.parametrize(
    ("condition", "verdict", "said"),
    [
        ("T < 100", "rejected", "past T = 100"),
        ("T / 4 < 40", "rejected", "past T = 160"),
        ("T < 4 * H + 100", "rejected", "past T = 104"),
        ("T < 100 * HV", "rejected", "past T = 100"),
        ("n < 30", "rejected", "past N = 30"),
        ("HV < 9", "rejected", "past HV = 9"),
        ("h < 9", "rejected", "past HV = 9"),
        ("min(T, 100) < 100", "rejected", "past T = 200"),
        ("T < 5000", "unknown", "a proof runs up to T = 1024"),
        ("N < 900", "unknown", "a proof runs up to N = 64"),
        ("T >= 0", "field", ""),
    ],
)
def test_a_program_that_forgets_the_state_beyond_some_size(prove_edited, condition, verdict, said):
    edit = [("where given(initial_state) else 0.0", FORGETS.format(condition))]
    proof = prove_edited(CHUNK, edit, {"decay": "pairwise"}, {"gate": "precomputed"}, trials=1)
    assert proof.verdict == verdict, proof.found
    assert said in (proof.difference.case if proof.difference is not None else proof.obstacle)


def test_a_shape_that_is_asked_for_stands_for_itself(prove_edited):
    edit = [("where given(initial_state) else 0.0", FORGETS.format("T < 5000"))]
    asked = {"shape": {"T": 40}, "trials": 1}
    assert prove_edited(CHUNK, edit, {"decay": "pairwise"}, {"gate": "precomputed"}, **asked).proved


def test_the_slots_of_a_ring_are_gone_past():
    """A ring of three slots wraps around after three chunks: the calls by default have two."""
    library = load(sorted((data_root() / "rules").rglob("*.kds")))
    found = {}
    for depth in (2, 3):
        (job, *_) = rule_jobs(
            library, library.rules["mma_any_gate"], "sm_90a", every_point=True, choices={"depth": depth}
        )
        plan = job.plan()
        functions, cases = scheduled_functions(Lowering(plan)), cases_of(plan.operator, plan.settings)
        (found[depth],) = (case.sizes["T"] for case in further_cases(plan, functions, cases) if "past T =" in case.name)
    assert found == {2: 2 * 16 + 16 + 1, 3: 3 * 16 + 16 + 1}


@pytest.mark.parametrize(
    ("literal", "verdict"),
    [
        ("1.4426950408889634", "field"),
        ("1.44269502", "field"),
        ("1.44269", "rejected"),
        ("1.4427", "rejected"),
        ("1.0", "rejected"),
    ],
)
def test_log2_e_is_a_symbol_in_its_exact_spellings_only(prove_edited, literal, verdict):
    edit = [("gx[i, d] * 1.4426950408889634", f"gx[i, d] * {literal}")]
    assert prove_edited(CHUNK, edit, {"decay": "pairwise"}, {}, trials=1).verdict == verdict


# ---- tensorized blocks ----
@pytest.fixture(scope="module")
def tensorized():
    name = intrinsic_name("mma.m16n8k16", "bf16", "nk")
    register(name)
    schedule = Schedule(load_json(save_json(s_tir.TensorIntrin.get(name).desc)))
    schedule.tensorize(schedule.get_loops(schedule.get_sblock("product"))[0], name)
    return save_json(schedule.mod["main"])


def instruction_block(func):
    body = func.body
    found = body.block.body if hasattr(body, "block") else body
    while not hasattr(found, "block"):
        found = found.body
    return found.block


def test_a_tensorized_block_is_its_description(tensorized):
    found = description_of(instruction_block(load_json(tensorized)))
    assert found is not None and len(found.params) == 3


def test_a_call_that_is_not_the_implementation(tensorized):
    """The accumulator and the operand exchanged in the call: the description no longer speaks for it."""
    document = json.loads(tensorized)
    nodes = document["nodes"]
    call = next(
        n["data"] for n in nodes if n.get("type") == "ir.Call" and len(nodes[n["data"]["args"]]["data"]) > 4
    )
    arguments = nodes[call["args"]]["data"]
    arguments[1], arguments[2] = arguments[2], arguments[1]
    with pytest.raises(NoMeaning, match="not its registered implementation"):
        description_of(instruction_block(load_json(json.dumps(document))))


def test_a_device_function_without_a_description(tensorized):
    text = tensorized.replace("kdsl_mma_m16n8k16_bf16_nk", "kdsl_made_up")
    with pytest.raises(NoMeaning, match="has no description"):
        description_of(instruction_block(load_json(text)))


def test_a_conflict_of_levels_names_the_expression(chunk):
    """g pinned as a value: the inference says where it meets an exponent."""
    plan, function = chunk
    with pytest.raises(NoMeaning) as refusal:
        Program.of([function], {**pins_of(plan), "g": 0})
    assert "exponent" in str(refusal.value) and refusal.value.where


def test_draws_are_random(chunk):
    first, second = (fields.Tower.draw(np.random.default_rng(seed), 4) for seed in (1, 2))
    assert first.primes != second.primes and first.salt != second.salt


def test_lengths_behind_the_last_token(prove_edited):
    edit = [("max(min(cu_seqlens[n + 1], T) - start(n), 0)", "max(cu_seqlens[n + 1] - start(n), 0)")]
    proof = prove_edited(CHUNK, edit, {"decay": "pairwise"}, {}, trials=1)
    assert proof.verdict == "rejected" and "behind the end" in proof.difference.case, proof.found
    assert "outside" in proof.difference.what
