"""Products that begin with zeros: the first instruction does not add, and nothing is set to zero."""

from __future__ import annotations

import re

import pytest

from kdsl.lower.fresh import with_fresh_products
from kdsl.lower.intrinsics.warpgroup import device_source, shape_of
from kdsl.lower.lowering import Lowering
from kdsl.lower.tvm import T, tvm

from ..workshop import plan, rehearsed_with, role_text, shipped

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}
NAME = "kdsl_wgmma_m64k16_16x16_bf16_nk_sw32"


def product(zeros: int = 8, value: float = 0.0, at: int = 0, other: bool = False):
    source = device_source(shape_of(NAME))

    @T.prim_func(s_tir=True)
    def written(a: T.handle, b: T.handle, d: T.handle):
        A = T.match_buffer(a, (8,), "bfloat16")
        B = T.match_buffer(b, (256,), "bfloat16")
        D = T.match_buffer(d, (16,), "float32")
        c = T.alloc_buffer((16,), "float32", scope="local")
        e = T.alloc_buffer((16,), "float32", scope="local")
        for i in T.unroll(zeros):
            c[i] = T.float32(value)
        T.cuda.func_call(
            NAME, T.address_of((e if other else c)[at]), T.address_of(A[0]), T.address_of(B[0]), source_code=source
        )
        D[0] = c[0] + e[0]

    return with_fresh_products(tvm.IRModule({"main": written})).script()


def test_zeros_in_front_of_a_product_are_its_own():
    text = product()
    assert f'"{NAME}_fresh"' in text and "c[i]" not in text
    first = device_source(shape_of("kdsl_wgmma_m64k16_16x128_bf16_nk_sw128"), fresh=True)
    assert first.count(", fresh, 1, 1") == 1 and first.count(", add, 1, 1") == 7 and '"+f"' not in first
    assert first.index(", fresh, ") < first.index(", add, ")


@pytest.mark.parametrize("change", [{"zeros": 6}, {"value": 1.0}, {"at": 4}, {"other": True}])
def test_other_numbers_stay(change):
    """Too few, not zero, not from the first one on, or of another tensor."""
    text = product(**change)
    assert "_fresh" not in text and "c[i] = " in text


def lowering():
    return Lowering(plan(shipped(), "wgmma_fused", target="sm_90a", **ON))


def test_a_shipped_kernel_sets_no_sums_to_zero():
    (launch,) = lowering().sources
    text = role_text(launch.source, "recurrence")
    assert len(re.findall(r"_fresh\(\(&\((sw|u|o_state)_warp", text)) == 3 and not re.search(
        r"_warp_ptr\[\w+\] = 0x0", text
    )


def test_a_product_that_adds_to_what_was_never_set_is_seen(monkeypatch):
    """The registers hold NaN on the emulator."""
    assert not rehearsed_with(monkeypatch, lowering(), "recurrence", ", fresh, 1, 1", ", add, 1, 1").holds
