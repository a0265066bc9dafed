"""Rows whose reads of shared memory come before the first of them writes."""

from __future__ import annotations

import re

import pytest

from kdsl.lower.lowering import Lowering
from kdsl.lower.reads import read_at_once
from kdsl.lower.tvm import For, T, structural_walk

from ..workshop import plan, rehearsed_with, role_text, shipped

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}


@T.prim_func(s_tir=True)
def rows(o: T.handle):
    out = T.match_buffer(o, (64,), "float32")
    a = T.alloc_buffer((64,), "float32", scope="shared.dyn")
    b = T.alloc_buffer((64,), "float32", scope="shared.dyn")
    for i in T.unroll(16):
        out[i] = a[i] + a[i * 3] + a[5] + b[i]
        b[i + 1] = a[i]


def loop(extent: int = 16):
    found: list = []
    structural_walk(rows.body, (For, found.append))
    (one,) = found
    return For(one.loop_var, 0, extent, one.kind, one.body, None, one.annotations)


def test_reads_of_what_no_row_writes_come_first():
    text = read_at_once(loop(), 4).script()
    first, second = text.split("for i_in in T.unroll(4):")
    assert "for i_of in T.unroll(4):" in first
    assert "a_rows[0:4] = a[T.Ramp(i_of * 4, 1, 4)]" in first, "neighbours as one vector"
    assert first.count(" * 3]") == 4 and "a_rows_1[3] = a[(i_of * 4 + 3) * 3]" in first
    assert "b_rows" not in text, "rows read what the row before has written"
    assert "a[5]" in second and "+ b[i_of * 4 + i_in]" in second


@pytest.mark.parametrize(("extent", "rows"), [(16, 1), (16, 16), (16, 5), (15, 4)])
def test_rows_that_are_no_groups_stay_as_they_are(extent, rows):
    one = loop(extent)
    assert read_at_once(one, rows).same_as(one)


def prepare():
    (launch,) = Lowering(plan(shipped(), "wgmma_fused", target="sm_90a", **ON)).sources
    return role_text(launch.source, "prepare")


def test_a_shipped_kernel_reads_four_rows_of_its_tiles_at_once():
    text = prepare()
    for tensor in ("qx", "kx", "gx"):
        assert text.count(f"{tensor}_rows_ptr + ") == 5, "four reads, one use"
    assert re.search(r"\*\(float4\*\)\(nq_rows_ptr \+ 0\) = \*\(float4\*\)", text)


def test_the_row_of_another_is_seen(monkeypatch):
    lowering = Lowering(plan(shipped(), "wgmma_fused", target="sm_90a", **ON))
    assert "(kx_rows_ptr + (i_in_1 * 2))" in prepare()
    verdict = rehearsed_with(monkeypatch, lowering, "recurrence", "(kx_rows_ptr + (i_in_1 * 2))", "(kx_rows_ptr + 0)")
    assert not verdict.holds
