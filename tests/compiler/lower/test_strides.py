"""Addresses that grow evenly from step to step are kept and grow; all others stay as they are written."""

from __future__ import annotations

import re

import pytest

from kdsl.lower.lowering import Lowering
from kdsl.lower.strides import with_strides
from kdsl.lower.tvm import T, tvm

from ..workshop import plan, rehearsed_with, role_text, shipped

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}


@T.prim_func(s_tir=True)
def even(a: T.handle, b: T.handle, n: T.int64, stride: T.int64, first: T.int64):
    A = T.match_buffer(a, (1048576,), "float32")
    B = T.match_buffer(b, (1048576,), "float32")
    for c in T.serial(n):
        for i in T.serial(4):
            B[(first + c * T.int64(16) + T.Cast("int64", i)) * stride] = A[(c + T.int64(2)) * stride - first]


@T.prim_func(s_tir=True)
def uneven(a: T.handle, b: T.handle, n: T.int64):
    A = T.match_buffer(a, (1048576,), "float32")
    B = T.match_buffer(b, (1048576,), "int64")
    for c in T.serial(n):
        A[c * c] = T.float32(1)
        A[B[c] + c] = T.float32(2)
        B[c % T.int64(4)] = c


@T.prim_func(s_tir=True)
def told(a: T.handle, b: T.handle, n: T.int64, stride: T.int64):
    """Where a step writes depends on what steps before it have written."""
    A = T.match_buffer(a, (1048576,), "float32")
    B = T.match_buffer(b, (1048576,), "int64")
    for c in T.serial(n):
        A[(B[0] + c) * stride] = T.float32(1)
        B[0] = T.int64(5)


def text(func) -> str:
    return with_strides(tvm.IRModule({"main": func})).script()


def test_starts_and_distances_are_computed_before_the_steps():
    found = text(even)
    before, loop = found.split("for c in", 1)
    assert "at_0[0] = T.int64(2) * stride - first" in before and "at_1[0] = first * stride" in before
    assert "A[at_0[0]]" in loop and "B[at_1[0] + " in loop, "what is left of both addresses"
    assert loop.count("at_0[0] = at_0[0] + stride") == loop.count("at_1[0] = at_1[0] + T.int64(16) * stride") == 1


def test_other_addresses_are_left_alone():
    """A product of two steps, a number that the loop writes, a remainder."""
    found = text(uneven)
    assert "at_" not in found and "c * c" in found and "B[c] + c" in found


def test_a_number_that_the_steps_write_is_read_in_every_step():
    found = text(told)
    assert "at_" not in found and "A[(B[0] + c) * stride] = " in found


def test_no_step_of_a_shipped_kernel_multiplies_by_a_stride():
    (launch,) = Lowering(plan(shipped(), "wgmma_fused", target="sm_90a", **ON)).sources
    for kernel in ("prepare", "recurrence"):
        body = role_text(launch.source, kernel)
        loop = body.split("for (int c = ")[1]
        accesses = [line for line in loop.split("\n") if "_ptr + " in line or "ptx_cp_async" in line]
        assert accesses and not [line for line in accesses if re.search(r"_stride\d", line)]


@pytest.mark.parametrize("growth", ["at_0", "at_1"])
def test_a_start_that_does_not_grow_is_seen(monkeypatch, growth):
    lowering = Lowering(plan(shipped(), "wgmma_fused", target="sm_90a", **ON))
    (launch,) = lowering.sources
    line = re.search(rf"    {growth}_ptr\[0\] = \({growth}_ptr\[0\] \+ .*;\n", launch.source)[0]
    verdict = rehearsed_with(monkeypatch, lowering, "recurrence", line, "")
    assert not verdict.holds
