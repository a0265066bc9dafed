"""Views that asynchronous copies fetch: the port's dtype, neighbours in memory, 16-byte addresses."""

from __future__ import annotations

import pytest

from kdsl.driver.package import alignment
from kdsl.lower.lowering import Lowering
from kdsl.plan.refusal import PlanRefused

from ..workshop import library_of, plan, shipped, tactic_body

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
    body = tactic_body("mma_recurrence")
    assert "    vx  " in body
    with pytest.raises(PlanRefused, match="is bf16 in this call") as caught:
        edited(tmp_path, TACTIC, body.replace(": in shared", ": f32 in shared"))
    assert caught.value.code == "D347"


def tactic(name: str, old: str, new: str) -> str:
    """The body of a shipped tactic with a part exchanged."""
    body = tactic_body(name)
    assert old in body
    return body.replace(old, new)


@pytest.mark.parametrize("applied, named, old, new, tensor, found", [
    (TACTIC, "mma_recurrence", "ring depth via cp.async of 16 bytes\n    o_sum", "ring depth\n    o_sum", "vx",
     "made in the step that reads it"),
    (TACTIC, "mma_recurrence", "o_sum for write_o                : f32 in shared pad 4",
     "o_sum for write_o : f32 in shared ring 2", "o_sum", "made in the step that reads it"),
    ("apply chunk_operands(prepare)", "chunk_operands", "f32 in registers as mma.m16n8k16.C",
     "f32 in registers as mma.m16n8k16.C ring 2", "l_raw", "no steps in kernel `prepare`"),
])  # fmt: skip
def test_a_ring_that_nothing_fills_is_refused(tmp_path, applied, named, old, new, tensor, found):
    body = tactic(named, old, new).replace("kernel.", "prepare.")
    with pytest.raises(PlanRefused, match=f"`{tensor}` has a ring of") as caught:
        edited(tmp_path, applied, body)
    assert (caught.value.code, caught.value.diagnostic.observed) == ("D366", found)


def test_a_ring_of_copies_needs_steps(tmp_path):
    columns = tactic("chunk_columns", "in shared pad 8 via", "in shared pad 8 ring 2 via")
    columns = columns.replace("warps warps", "2 warps").replace("by width", "by 2")
    operands = tactic("chunk_operands", "apply chunk_columns(2, 2)", "").replace("kernel.", "prepare.")
    with pytest.raises(PlanRefused, match="`qx` has a ring of 2") as caught:
        edited(tmp_path, "apply chunk_operands(prepare)", columns + operands)
    assert (caught.value.code, caught.value.diagnostic.observed) == ("D366", "no steps in kernel `prepare`")
