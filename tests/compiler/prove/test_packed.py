"""Grids of slots under proof: those of the operator are enumerated once each, and only in the order of sequences."""

from __future__ import annotations

import pytest

from kdsl.data import data_root
from kdsl.prove.jobs import proof_of_job, rule_jobs

from ..workshop import library_of

OPERATOR = (data_root() / "stdlib" / "operators" / "kda.chunk_forward.kds").read_text("utf-8")
RULE = """
rule two schedules quick.chunk_forward on cpu {
  form { C = 16; decay = pairwise; chain = folded }
  kernel prepare computes prepare {
    grid { task : GRID }
    place { w, q_fold, k_restored, gamma, u0, o_intra : f32 in workspace }
  }
  kernel recurrence computes recur { grid { task : n, h } }
}
"""
SLOT = "then start(n) / C + n + c else"
LATER_FIRST = "then (T - start(n) - length(n)) / C + (N - 1 - n) + c else"  # as good a place: the last sequence first
EACH, PACKED = "n, h, c", "h, n, c packed"


def proved(folder, grid: str, *edits: tuple[str, str]):
    text = OPERATOR.replace("kda.chunk_forward", "quick.chunk_forward").replace("kda.acceptance", "quick.acceptance")
    for old, new in edits:
        assert text.count(old) == 1
        text = text.replace(old, new)
    library = library_of(folder, text + RULE.replace("GRID", grid))
    (job, *_) = rule_jobs(library, library.rules["two"], "cpu", every_point=False, sizes={"K": 16, "V": 16})
    return proof_of_job(job, None, 1)


@pytest.mark.parametrize("grid", [EACH, PACKED, "n, c packed, h"])
def test_every_slot_is_there(grid, tmp_path):
    proof = proved(tmp_path, grid)
    assert proof.proved, proof.found


@pytest.mark.parametrize(("grid", "verdict"), [(EACH, "field"), (PACKED, "rejected")])
def test_slots_in_another_order_cannot_be_searched(grid, verdict, tmp_path):
    assert proved(tmp_path, grid, (SLOT, LATER_FIRST)).verdict == verdict


@pytest.mark.parametrize("grid", [EACH, PACKED])
def test_lengths_that_a_task_keeps_are_told_apart(grid, tmp_path):
    """They stand in memory of the task's own where n is found: the call past the constant is tried all the same."""
    edit = ("qn[i, d] = qx[i, d] * scale", "qn[i, d] = if length(n) < 100 then qx[i, d] * scale else 0.0")
    proof = proved(tmp_path, grid, edit)
    assert proof.verdict == "rejected" and "past T = 100" in proof.difference.case, proof.found


@pytest.mark.parametrize("grid", [EACH, PACKED])
def test_the_wrong_stage_is_found_in_a_slot(grid, tmp_path):
    """What a task held is compared by the n and c that it found, not by its slot, which the reference has not."""
    proof = proved(tmp_path, grid, ("if j < i then b[i] * l_raw", "if j < i then b[j] * l_raw"))
    assert proof.verdict == "rejected" and proof.difference.stage == "mask_kk", proof.found
    assert "c = 0, h = 0, n = 0" in proof.difference.place
