"""Swizzled rows of shared memory: copies and matrix loads agree on them, and conflicts are those of the model."""

from __future__ import annotations

import re

import pytest

from kdsl.driver import rehearsal
from kdsl.driver.emulation import LoweredProgram
from kdsl.emulate.rehearsals import rehearsals
from kdsl.emulate.run import emulate
from kdsl.inspect.shared import shared_uses
from kdsl.inspect.stages import stage_names
from kdsl.lower.lowering import Lowering
from kdsl.lower.swizzle import Swizzle
from kdsl.plan.refusal import PlanRefused

from ..workshop import library_of, plan, rehearsed_with, shipped, tactic_text

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}
OPERANDS = "k_decayed, q_decayed, k_restored : bf16 in shared"


def planned(folder, old: str, new: str):
    """mma_bounded with a tactic of its own, in which a placement is another one."""
    tactic = tactic_text("mma_recurrence")
    assert old in tactic
    tactic = tactic.replace(old, new).replace("tactic mma_recurrence(", "tactic own_recurrence(")
    rule = (
        shipped().rules["mma_bounded"].declaration.span.text.replace("apply mma_recurrence(", "apply own_recurrence(")
    )
    rule = re.sub(r" +bank_conflicts .*\n", "", rule)
    return plan(library_of(folder, f"{rule}\n\n{tactic}"), "mma_bounded", target="sm_90a", **ON)


@pytest.mark.parametrize("width, degree", [(128, 1), (64, 2), (32, 4)])
def test_results_are_right_and_conflicts_are_those_of_the_model_and_the_emulator(tmp_path, width, degree):
    """Rows of 256 bytes: eight rows in 8, 4 or 2 different places."""
    lowering = Lowering(planned(tmp_path, f"{OPERANDS} swizzle 128", f"{OPERANDS} swizzle {width}"))
    recurrence, scheduled = lowering.plan.kernels[1], lowering.scheduled[1]
    uses = shared_uses(scheduled, lowering.plan.target, stage_names(recurrence))
    loads = [u.wavefronts().degree for u in uses if u.kind == "ldmatrix" and u.buffer == "k_decayed"]
    assert loads == [degree]
    program = LoweredProgram(lowering)
    (verdict,) = rehearsal.rehearsed(lowering)
    assert verdict.holds and verdict.found.startswith("11 calls, "), verdict
    call = rehearsals("kda.chunk_forward", program.settings)[0].call
    found = emulate(program.bind(call).launches, target="sm_90a")
    ratios = {t.conflict for t in found.shared if t.access == "ldmatrix" and t.kernel == "kdsl_recurrence_kernel"}
    assert max(ratios) == degree and min(ratios) == 1  # `inv` and `m` have pads


def test_loads_that_exchange_other_pieces_are_seen(tmp_path, monkeypatch):
    lowering = Lowering(planned(tmp_path, f"{OPERANDS} swizzle 128", f"{OPERANDS} swizzle 128"))
    verdict = rehearsed_with(monkeypatch, lowering, "recurrence", "& b_mask) << 3", "& b_mask >> 1) << 3")
    assert not verdict.holds and "is rejected" in verdict.found


@pytest.mark.parametrize("old, new, said", [
    ("vx                               : in shared pad 8", "vx : in shared swizzle 128", "stage `residual` reads it"),
    ("inv, m                           : bf16 in shared pad 8", "inv, m : bf16 in shared swizzle 64", "swizzle 64"),
])  # fmt: skip
def test_what_cannot_be_swizzled_is_refused(tmp_path, old, new, said):
    """Elements that a stage reads one by one; rows of 32 bytes, which a swizzle of 64 does not fit."""
    try:
        planned(tmp_path, old, new)
    except PlanRefused as refused:
        assert refused.code == "D359" and said in refused.diagnostic.observed
    except AssertionError as checked:  # `check` refuses what is too wide (E305)
        assert said in str(checked) and "E305" in str(checked)
    else:
        pytest.fail("nothing was refused")


def test_a_swizzle_is_its_own_inverse_within_a_line():
    swizzle = Swizzle(7, 7, 3)
    places = [swizzle.of(at) for at in range(16 * 128)]
    assert sorted(places) == list(range(16 * 128)) and all(swizzle.of(swizzle.of(at)) == at for at in places)
    assert all(at >> 7 == place >> 7 for at, place in enumerate(places))
