"""Rows without a warp, misaligned rows and results of several blocks are refused before any code is made."""

from __future__ import annotations

import pytest

from kdsl.check import check_paths
from kdsl.plan.refusal import PlanRefused

from ..workshop import chunk_operands, library_of, plan, shipped, tactic_body

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}
TEXT = shipped().rules["mma_bounded"].declaration.span.text
RECURRENCE = tactic_body("mma_recurrence")


def planned(folder, *changes: tuple[str, str], rule: str = "mma_bounded"):
    """The plan of a shipped rule with its tactic's lines in place and some of its text exchanged."""
    text = shipped().rules[rule].declaration.span.text.replace("apply mma_recurrence(v_tile, depth)", RECURRENCE)
    for old, new in (("    bank_conflicts == 1\n", ""), *changes):  # a promise that `check` itself would refuse
        assert old in text, old
        text = text.replace(old, new)
    return plan(library_of(folder, text), rule, target="sm_90a", **ON)


def refused(folder, *changes, rule: str = "mma_bounded") -> PlanRefused:
    with pytest.raises(PlanRefused) as caught:
        planned(folder, *changes, rule=rule)
    return caught.value


def test_the_rules_as_they_are(tmp_path):
    assert [len(kernel.threads) for kernel in planned(tmp_path).kernels] == [2, 2]


@pytest.mark.parametrize("line, had, pad, near", [
    ("vx                               : in shared", "pad 8", 9, "pad 16"),
    ("k_decayed, q_decayed, k_restored : bf16 in shared", "swizzle 128", 12, "pad 16"),
    ("inv, m                           : bf16 in shared", "pad 8", 4, "pad 8"),
])  # fmt: skip
def test_rows_that_copies_cannot_reach(tmp_path, line, had, pad, near):
    found = refused(tmp_path, (f"{line} {had}", f"{line} pad {pad}"))
    assert found.code == "D356" and near in found.help[0]


def test_rows_may_lie_at_any_multiple_of_what_is_taken_at_once(tmp_path):
    made = planned(tmp_path, ("vx                               : in shared pad 8", "vx : in shared pad 16"))
    assert made.kernels[1].tensors["vx"].pad == 16


@pytest.mark.parametrize("change, said", [
    (("y : e by v_tile; ", ""), "4 warps hold 64 rows `e` of"),
    (("all : v_tile / 16 warps", "all : 2 warps"), "2 warps hold 32 rows `e` of"),
])  # fmt: skip
def test_rows_that_no_warp_holds(tmp_path, change, said):
    found = refused(tmp_path, change)
    assert found.code == "D355" and said in found.message


def test_results_that_several_blocks_would_write(tmp_path):
    found = refused(tmp_path, ("grid { x : n, c packed; y : h }", "grid { x : e; y : h; z : n }"))
    assert found.code == "D357" and "every block along `e`" in found.message


@pytest.mark.parametrize("line", [
    "k_decayed, q_decayed, k_undone : bf16 in shared", "k_decayed, q_decayed, inv for recurrence : bf16 in workspace",
])  # fmt: skip
def test_decays_do_not_fit_f16(tmp_path, line):
    """exp(80) is beyond 65504, and exp(-80) beside it is 0: the operator offers bf16 for them."""
    whole = TEXT.replace("apply chunk_operands(prepare)", chunk_operands())
    text = whole.replace(line, line.replace("bf16", "f16"))
    assert text != whole
    (tmp_path / "rule.kds").write_text(text, encoding="utf-8")
    result = check_paths([tmp_path / "rule.kds"])
    assert [d.code for d in result.diagnostics] == ["E308"] and "may not be stored as f16" in str(result.diagnostics)
