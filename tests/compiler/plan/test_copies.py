"""Views that asynchronous copies fetch: the port's dtype, neighbours in memory, 16-byte addresses."""

from __future__ import annotations

import pytest

from kdsl.data import data_root
from kdsl.driver.package import alignment
from kdsl.lower.lowering import Lowering
from kdsl.plan.refusal import PlanRefused

from ..workshop import library_of, plan, shipped

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}
TEXT = shipped().rules["mma_bounded"].declaration.span.text
TACTIC = "apply mma_recurrence(v_tile, depth)"


def edited(folder, old: str, new: str):
    assert old in TEXT
    return plan(library_of(folder, TEXT.replace(old, new)), "mma_bounded", target="sm_90a", **ON)


def test_values_are_fetched_by_predicated_copies():
    made = plan(shipped(), "mma_bounded", target="sm_90a", **ON)
    assert alignment(made) == {"q": 16, "k": 16, "v": 16, "g": 16, "dt_bias": 8, "o": 8}
    recurrence = next(kernel for kernel in made.kernels if kernel.name == "recurrence")
    assert recurrence.tensors["vx"].dtype == "bf16" and recurrence.tensors["vx"].ring == 4
    (source,) = (made.source for made in Lowering(made).sources if made.kernel == "recurrence")
    calls = [line for line in source.splitlines() if "cp_async" in line and "pred" in line and "v_ptr" in line]
    assert len(calls) == 4, "one for each of the first three steps, one in each step"
    helpers = [line for line in source.splitlines() if "__device__ void ptx_cp_async" in line]
    assert len(helpers) == 3 and all("int64_t src_off" in line for line in helpers), "offsets beyond 2^31 elements"


def test_rules_without_fetched_views_promise_no_alignment():
    assert alignment(plan(shipped(), "cpu_split", **ON)) == {}


def test_a_view_whose_neighbours_nobody_claims_is_not_copied(tmp_path):
    with pytest.raises(PlanRefused, match="last stride") as caught:
        edited(tmp_path, "unit_stride(q, k, v, g, o)", "unit_stride(q, k, g, o)")
    assert caught.value.code == "D354"
    assert "unit_stride(v)" in caught.value.help[0]


def test_a_copy_does_not_cast(tmp_path):
    tactics = (data_root() / "stdlib" / "tactics" / "mma.kds").read_text(encoding="utf-8")
    body = tactics.split("tactic mma_recurrence(v_tile, depth) {")[1].split("\n}\n")[0]
    assert "    vx  " in body
    with pytest.raises(PlanRefused, match="is bf16 in this call") as caught:
        edited(tmp_path, TACTIC, body.replace(": in shared", ": f32 in shared"))
    assert caught.value.code == "D347"
