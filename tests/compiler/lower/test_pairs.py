"""Roundings of neighbours to 16-bit registers, two at a time."""

from __future__ import annotations

import pytest

from kdsl.lower.lowering import Lowering
from kdsl.lower.pairs import with_pairs
from kdsl.lower.tvm import T, tvm

from ..workshop import plan, rehearsed_with, shipped

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}


def rounded(extent: int = 8, dtype: str = "bfloat16", first: int = 8, step: int = 1, scope: str = "local"):
    @T.prim_func(s_tir=True)
    def written(a: T.handle):
        A = T.match_buffer(a, (64,), "float32")
        x = T.alloc_buffer((64,), dtype, scope=scope)
        for e in T.unroll(2):
            for i in T.unroll(extent):
                x[e * first + i * step] = T.Cast(dtype, A[i] * T.float32(2))
        A[0] = T.Cast("float32", x[0])

    return with_pairs(tvm.IRModule({"main": written})).script()


@pytest.mark.parametrize(("dtype", "name"), [("bfloat16", "bf16"), ("float16", "f16")])
def test_neighbours_are_rounded_together(dtype, name):
    text = rounded(dtype=dtype)
    assert "for i in T.unroll(4):" in text and f'"kdsl_two_{name}", T.address_of(x[e * 8 + i * 2])' in text
    assert "A[i * 2] * T.float32(2.0), A[i * 2 + 1] * T.float32(2.0)" in text


@pytest.mark.parametrize(
    "change", [{"extent": 7}, {"first": 7}, {"step": 2}, {"dtype": "float32"}, {"scope": "shared"}]
)
def test_others_are_not(change):
    """An odd number, from an odd one on, not neighbours, not 16 bits, not registers."""
    assert "kdsl_two" not in rounded(**change)


def test_two_that_change_places_are_seen(monkeypatch):
    lowering = Lowering(plan(shipped(), "wgmma_fused", target="sm_90a", **ON))
    old, new = "__floats2bfloat162_rn(first, second)", "__floats2bfloat162_rn(second, first)"
    assert not rehearsed_with(monkeypatch, lowering, "recurrence", old, new).holds
