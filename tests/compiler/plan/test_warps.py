"""What few warps do: small products and stages on warps of their own, columns that are a warp's, values kept."""

from __future__ import annotations

import re

import pytest

from kdsl.lower.lowering import Lowering
from kdsl.plan.cuda.alone import Alone
from kdsl.plan.refusal import PlanRefused

from ..workshop import library_of, library_with, plan

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}
TEXT = library_with("mma_beside").rules["mma_beside"].declaration.span.text
ROUNDED = re.search(r"o_sum for write_o +: f32 in shared pad 4 over e by 16", TEXT)[0]
VALUES = re.search(r"vx +: in shared pad 8 over e by 16 ring depth via cp.async of 16 bytes", TEXT)[0]


def kernels(rule: str = "mma_beside", **choices):
    return {kernel.name: kernel for kernel in plan(library_with(rule), rule, choices, target="sm_90a", **ON).kernels}


def refused(folder, *changes: tuple[str, str]) -> PlanRefused:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(PlanRefused) as caught:
        plan(library_of(folder, text), "mma_beside", target="sm_90a", **ON)
    return caught.value


# ---- turns


def test_products_of_one_tile_are_on_warps_of_their_own():
    prepare = kernels()["prepare"]
    products = {name: prepare.turns.get(name, 0) for name in ("gram_kk", "gram_qk")}
    assert sorted(products.values()) == [0, 1], "both warps of a group"
    assert prepare.turns.get("mask_kk", 0) == products["gram_kk"], "fragments stay where they are"
    assert prepare.turns.get("mask_qk", 0) == products["gram_qk"]
    squares = {prepare.turns.get(name, 0) for name in ("square_q", "square_k")}
    assert squares == {0, 1}


@pytest.mark.parametrize("rule", ["mma_bounded", "mma_beside"])
def test_products_for_all_warps_are_not_turned(rule):
    recurrence = kernels(rule)["recurrence"]
    assert not set(recurrence.turns) & {"state_key", "state_query", "within", "state_update"}


def test_the_text_has_the_warps_of_the_plan():
    """Warp 0 of a turned stage is another one: the condition speaks of the warp, modulo their number."""
    made = plan(library_with("mma_beside"), "mma_beside", target="sm_90a", **ON)
    prepare, source = made.kernels[0], Lowering(made).alone[0]
    lines = source.source.split("\n")
    turned = r"\(\(\(\(int\)threadIdx\.y\) \+ 1\) % 2\)"
    for name in ("gram_kk", "gram_qk"):
        text = "\n".join(lines[number - 1] for number in source.lines.lines(name))
        assert bool(re.search(turned, text)) is bool(prepare.turns.get(name, 0)), name


# ---- values that are the same in every step


def test_stages_that_speak_of_no_step_are_computed_once():
    prepare = kernels()["prepare"]
    before = {stage.name for stage in prepare.prologue}
    assert {"gate_rate", "gate_shift"} <= before
    assert {prepare.tensors[name].scope for name in ("rate", "shift")} == {"carried"}
    inside = {stage.name for stage in prepare.body}
    assert not before & inside and {"log_gate", "decay_sum", "unit_q"} <= inside


def test_a_kernel_without_steps_computes_all_where_it_is():
    prepare = kernels("mma_bounded")["prepare"]
    assert {"gate_rate", "gate_shift"} <= {stage.name for stage in prepare.body} and not prepare.prologue


def test_what_lies_in_shared_memory_stays_in_the_step(tmp_path):
    text = re.sub(r"qn, kn, shift, lg", "qn, kn, lg", TEXT)
    text = re.sub(r"qq, kk, nq,", "shift, qq, kk, nq,", text)
    assert text != TEXT
    made = plan(library_of(tmp_path, text), "mma_beside", target="sm_90a", **ON)
    assert "gate_shift" in {stage.name for stage in made.kernels[0].body}
    assert made.kernels[0].tensors["shift"].scope == "step"


# ---- columns of a warp


def test_warps_with_columns_of_their_own_wait_for_no_other():
    recurrence = kernels()["recurrence"]
    assert recurrence.apart and not recurrence.barriers and recurrence.syncs
    (launch,) = Lowering(plan(library_with("mma_beside"), "mma_beside", target="sm_90a", **ON)).sources
    start = launch.source.index("void kdsl_recurrence_kernel_role(")
    body = launch.source[start : launch.source.index("\n}\n", start)]
    assert "kdsl_warps_barrier" not in body and "kdsl_warp_sync();" in body


def test_without_them_the_block_waits(tmp_path):
    text = TEXT.replace(ROUNDED, ROUNDED.replace(" over e by 16", ""))
    recurrence = plan(library_of(tmp_path, text), "mma_beside", target="sm_90a", **ON).kernels[1]
    assert not recurrence.apart and "write_o" in recurrence.barriers


@pytest.mark.parametrize("old, new, observed, required", [
    (ROUNDED, ROUNDED.replace("by 16", "by 32"), "128 values of `e`", "8 warps of 32"),
    (ROUNDED, ROUNDED.replace("over e by 16", "over j by 2"),
     "stage `o_sum_round_write_o` on fragments of rows `e` by 16", "rows `j` by 2"),
    (VALUES, VALUES.replace("over e by 16", "over i by 2"), "stage `residual` on fragments of rows `e` by 16",
     "rows `i` by 2"),
    ("inv, m                           : bf16 in shared pad 8 ring", "inv, m : bf16 in shared pad 8 over i by 2 ring",
     "the product `solve_apply`, whose warps read all of it", "a stage on elements"),
])  # fmt: skip
def test_columns_of_other_warps(tmp_path, old, new, observed, required):
    found = refused(tmp_path, (old, new))
    assert (found.code, found.observed, found.required) == ("D364", observed, required)
    assert "then all warps of the block wait for each other" in found.help[0]


def test_who_is_together():
    alone = Alone({"a": 0, "b": 0, "c": 1}, frozenset({"x", "y"}))
    assert alone.together("a", "b") and not alone.together("a", "c") and not alone.together("a", "other")
    assert alone.together("x", "y") and not alone.together("x", "a") and not alone.together("other", "other")
