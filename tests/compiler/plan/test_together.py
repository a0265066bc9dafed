"""Stages on the columns that lanes own go row by row, where nothing stands between them."""

from __future__ import annotations

import pytest

from kdsl.data import data_root
from kdsl.lower.lowering import Lowering
from kdsl.lower.together import with_rows_together
from kdsl.lower.tvm import For
from kdsl.plan.cuda.together import may_join, row_of, together
from kdsl.plan.refusal import PlanRefused

from ..workshop import library_of, plan, role_text, shipped, tactic_body

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}


def prepare(rule: str = "wgmma_fused"):
    return plan(shipped(), rule, target="sm_90a", **ON).kernels[0]


def stage(kernel, name: str):
    return next(stage for stage in kernel.body if stage.name == name)


def test_gates_go_together_with_their_sums():
    assert ("log_gate", "decay_sum") in prepare().together, "a scan goes along: it reads rows of its own"


@pytest.mark.parametrize("rule", ["wgmma_fused", "mma_bounded", "mma_few_heads"])
def test_what_is_made_of_k_goes_together(rule):
    (group,) = [group for group in prepare(rule).together if "unit_k" in group]
    assert {"unit_k", "decay_k", "undo_k", "restore_k"} <= set(group)


@pytest.mark.parametrize("number, code, said", [
    ("3", "D131", "parts the 16 rows"), ("16", "D131", "a divisor of 16 below it"), ("0", "D131", "whole number"),
])  # fmt: skip
def test_rows_that_do_not_go_together_are_refused(tmp_path, number, code, said):
    with pytest.raises(PlanRefused) as refused:
        pinned(tmp_path, "wgmma_fused", "prepare.rows_at_once = 4", f"prepare.rows_at_once = {number}")
    assert refused.value.code == code and said in str(refused.value.diagnostic)


def test_a_kernel_without_such_stages_has_no_rows_at_once(tmp_path):
    with pytest.raises(PlanRefused) as refused:
        pinned(tmp_path, "mma_any_gate", "blocks_per_sm = 5 }", "blocks_per_sm = 5; prepare.rows_at_once = 4 }")
    assert refused.value.code == "D132"


def pinned(folder, rule: str, old: str, new: str):
    """The plan of a shipped rule with its lines of `prepare_beside` written out, and one of them changed."""
    lines = tactic_body("prepare_beside", "beside.kds")
    for parameter, value in (("kernel.", "prepare."), ("taker", "recurrence"), ("ring ahead", "ring 2")):
        lines = lines.replace(parameter, value)
    text = (data_root() / "rules" / "kda.chunk_forward" / f"{rule}.kds").read_text(encoding="utf-8")
    text = text.replace("apply prepare_beside(prepare, recurrence, 2)", lines)
    assert text.count(old) == 1
    gate = "softplus" if rule == "mma_any_gate" else "bounded"
    return plan(library_of(folder, text.replace(old, new)), rule, target="sm_90a", **ON | {"gate": gate})


def test_a_stage_that_reads_another_row_ends_the_group():
    kernel = prepare()
    total, decays = stage(kernel, "decay_total"), stage(kernel, "decay_sum")
    assert row_of(total, kernel.tensors) is None and row_of(decays, kernel.tensors).index == "i"
    assert not any("decay_total" in group for group in kernel.together)


def test_stages_with_other_owners_or_without_rows_stay_alone():
    kernel = prepare()
    assert row_of(stage(kernel, "gram_kk"), kernel.tensors) is None
    assert not may_join(stage(kernel, "inv_round_recurrence"), stage(kernel, "unit_k"), kernel.tensors), "other columns"


@pytest.mark.parametrize("breaks, slots, expected", [
    ((), (), [("log_gate", "decay_sum"), ("unit_q", "unit_k", "decay_k", "decay_q", "undo_k", "restore_k")]),
    (("decay_k",), (),
     [("log_gate", "decay_sum"), ("unit_q", "unit_k"), ("decay_k", "decay_q", "undo_k", "restore_k")]),
    (("decay_sum",), ("q_decayed",), [("unit_q", "unit_k", "decay_k"), ("decay_q", "undo_k", "restore_k")]),
])  # fmt: skip
def test_barriers_and_waits_for_a_slot_stand_between_groups(breaks, slots, expected):
    kernel = prepare()
    assert list(together(kernel.body, kernel.tensors, breaks, slots)) == expected


def rows(source: str) -> int:
    """Loops over the rows in the text of the giving kernel."""
    return role_text(source, "prepare").count("i < 16")


def test_the_text_has_one_loop_for_a_group():
    lowering = Lowering(plan(shipped(), "wgmma_fused", target="sm_90a", **ON))
    text = lowering.sources[0].source
    body = role_text(text, "prepare")
    loop = body[: body.index("k_restored_ptr +")].rsplit("for (int ", 1)[1]
    assert "k_decayed_ptr +" in loop and "q_decayed_ptr +" in loop, "three tensors of a row, then the next row"


def test_loops_of_other_lengths_are_not_joined():
    """The plan says which stages go together; a loop that the schedule left otherwise stays as it is."""
    lowering = Lowering(plan(shipped(), "wgmma_fused", target="sm_90a", **ON))
    kernel, scheduled = lowering.plan.kernels[0], lowering.scheduled[0]
    stages = tuple(dict.fromkeys(stage.name for stage in kernel.stages))
    module = scheduled.module
    assert with_rows_together((), stages)(module) is module
    same = with_rows_together(kernel.together, stages)(module)  # no marks: nothing to join
    assert same.script() == module.script() and For is not None
