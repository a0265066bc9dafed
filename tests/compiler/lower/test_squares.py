"""Sums of squares of rows as the diagonal of a product."""

from __future__ import annotations

import pytest

from kdsl.driver import rehearsal
from kdsl.lower.lowering import Lowering
from kdsl.plan.refusal import PlanRefused

from ..workshop import library_of, plan, rehearsed_with, shipped, tactic_text

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True}
NAME = "kdsl_squares_mma_m16n8k16_bf16_128"


@pytest.fixture(scope="module")
def lowering():
    return Lowering(plan(shipped(), "mma_bounded", target="sm_80", gate="bounded", **ON))


def test_a_square_is_one_call_and_the_sums_are_right(lowering):
    text = lowering.sources[0].source
    assert text.count(f"{NAME}(") == 3  # the function, and one call each for q and k
    (verdict,) = rehearsal.rehearsed(lowering)
    assert verdict.holds and verdict.found.startswith("11 calls, "), verdict


@pytest.mark.parametrize("old, new", [
    ("odd ? c[7] : c[6]", "odd ? c[5] : c[4]"),  # rows 8 to 15 of the other quarter
    ("(lane & 7) * 4", "(lane & 3) * 4"),  # another lane's element
    ("k < 128", "k < 112"),  # a row without its end
])  # fmt: skip
def test_wrong_sums_are_seen(lowering, monkeypatch, old, new):
    assert not rehearsed_with(monkeypatch, lowering, "prepare", old, new).holds


def test_sums_that_are_no_squares_of_16_bit_rows_are_refused(tmp_path):
    """chunk_inputs has q in f32."""
    rule = shipped().rules["mma_any_gate"].declaration.span.text
    tactic = tactic_text("chunk_inputs")
    own = tactic.replace("tactic chunk_inputs(", "tactic own_inputs(")
    own = own.replace("square_q, square_k : fma.f32 lanes d by 4 via shuffle", "square_q, square_k : mma.m16n8k16")
    assert own != tactic
    library = library_of(tmp_path, rule.replace("apply chunk_inputs(", "apply own_inputs(") + "\n\n" + own)
    with pytest.raises(PlanRefused) as refused:
        plan(library, "mma_any_gate", target="sm_80", gate="softplus", **ON)
    diagnostic = refused.value.diagnostic
    assert refused.value.code == "D344" and "f32 in shared" in diagnostic.observed
