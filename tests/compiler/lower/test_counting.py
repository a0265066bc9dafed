"""Loops over steps count in 32 bits, and keep what depends on the number of a step: slots, rows that are left."""

from __future__ import annotations

import re

import pytest

from kdsl.lower.counting import with_narrow_steps
from kdsl.lower.lowering import Lowering
from kdsl.lower.tvm import T, tvm

from ..workshop import plan, rehearsed_with, shipped

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}


@T.prim_func(s_tir=True)
def counted(a: T.handle, b: T.handle, n: T.int64, length: T.int64):
    A = T.match_buffer(a, (64,), "float32")
    B = T.match_buffer(b, (1048576,), "float32")
    for c in T.serial(n):
        if c + T.int64(2) < n:
            A[T.truncmod(T.Cast("int32", c + T.int64(2)), 4)] = B[c * T.int64(7)]
        A[T.truncmod(T.Cast("int32", c), 3)] = B[T.truncdiv(T.Cast("int32", c), 4)]
        for i in T.serial(16):
            if i < T.Cast(
                "int32", T.min(T.max(length - c * T.int64(16) - T.int64(32), T.int64(0)), T.int64(2147483647))
            ):
                A[i] = T.float32(1)


@T.prim_func(s_tir=True)
def other(a: T.handle, n: T.int64, m: T.int64):
    A = T.match_buffer(a, (64,), "int64")
    for c in T.serial(n):
        if c + T.int64(2) < m:
            A[T.truncmod(T.Cast("int32", c * c), 4)] = T.truncmod(c, T.int64(4))
        A[T.truncdiv(T.Cast("int32", c), 3)] = T.min(T.max(m - c * c, T.int64(0)), T.int64(2147483647))
    for i in T.serial(8):
        A[i] = T.int64(0)


def text(func) -> str:
    return with_narrow_steps(tvm.IRModule({"main": func})).script()


def test_numbers_of_steps():
    before, loop = re.sub(r"(left|slot)_\d", r"\1_N", text(counted)).split('for c in range(T.Cast("int32", n)):', 1)
    assert 'left_N[0] = T.Cast("int32", T.min(length, T.int64(2147483647)))' in before and "slot_N[0] = 0" in before
    assert 'if c + 2 < T.Cast("int32", n):' in loop
    assert 'A[c + 2 & 3] = B[T.Cast("int64", c) * T.int64(7)]' in loop
    assert "A[slot_N[0]] = B[c >> 2]" in loop
    assert "if i < left_N[0] + -32:" in loop
    assert "left_N[0] = left_N[0] + -16" in loop
    assert "slot_N[0] = T.if_then_else(slot_N[0] == 2, 0, slot_N[0] + 1)" in loop


def test_what_does_not_grow_evenly_stays_as_it_is():
    found = text(other)
    assert "left_" not in found and "slot_" not in found and "for i in range(8)" in found
    assert found.count('T.Cast("int64", c)') >= 4 and found.count("T.truncmod(") == 2 and "T.Div(c, 3)" in found


@pytest.mark.parametrize("number", ["left_0", "slot_1"])
def test_a_number_that_stands_still_is_seen(monkeypatch, number):
    lowering = Lowering(plan(shipped(), "wgmma_fused", target="sm_90a", **ON))
    (launch,) = lowering.sources
    line = re.findall(rf"    {number}_ptr\[0\] = .*;\n", launch.source)[-1]
    assert not rehearsed_with(monkeypatch, lowering, "recurrence", line, "").holds
