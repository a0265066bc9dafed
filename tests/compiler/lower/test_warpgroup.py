"""Products of a warpgroup: operand B through descriptors, in panels, fenced and waited for."""

from __future__ import annotations

import re

import pytest
from attrs import evolve

from kdsl.driver import rehearsal
from kdsl.driver.threads import device_program, prove_rule_threads
from kdsl.inspect.shared import shared_uses
from kdsl.inspect.stages import stage_names
from kdsl.lower.lowering import Lowering
from kdsl.plan.refusal import PlanRefused
from kdsl.prove.proof import FIELD, REJECTED

from ..workshop import library_of, plan, rehearsed_with, shipped, tactic_text

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}
SMALL = "inv, m                           : bf16 in shared swizzle 32"


def planned(folder, *edits: tuple[str, str]):
    """mma_bounded with its recurrence by wgmma, and further edits of that tactic."""
    tactic = tactic_text("mma_recurrence")
    own = [
        ("inv, m                           : bf16 in shared pad 8", SMALL),
        ("mma.m16n8k16", "wgmma.m64k16"),
        ("tactic mma_recurrence(", "tactic own_recurrence("),
    ]
    for old, new in (*own, *edits):
        assert old in tactic
        tactic = tactic.replace(old, new)
    rule = shipped().rules["mma_bounded"].declaration.span.text
    rule = rule.replace("apply mma_recurrence(", "apply own_recurrence(")
    rule = rule.replace("v_tile in [32, 64]", "v_tile in [64]")
    rule = re.sub(r" schedules kda.chunk_forward on .* \{", " schedules kda.chunk_forward on sm_90a {", rule)
    rule = re.sub(r" +(count\(mma|bank_conflicts) .*\n", "", rule)
    return plan(library_of(folder, f"{rule}\n\n{tactic}"), "mma_bounded", target="sm_90a", **ON)


def rejected(monkeypatch, lowering: Lowering, old: str, new: str) -> str:
    """What the emulator finds with the recurrence's text changed."""
    verdict = rehearsed_with(monkeypatch, lowering, "recurrence", old, new)
    assert not verdict.holds
    return verdict.found


def test_results_are_right_and_panels_have_no_conflicts(tmp_path):
    lowering = Lowering(planned(tmp_path))
    recurrence, scheduled = lowering.plan.kernels[1], lowering.scheduled[1]
    text = lowering.sources[1].source
    assert text.count("wgmma.mma_async.sync.aligned.m64n16k16") == 10  # state_key and state_query alike, two small
    assert text.count("wgmma.mma_async.sync.aligned.m64n128k16") == 1 and "mma.sync" not in text
    uses = shared_uses(scheduled, lowering.plan.target, stage_names(recurrence))
    read = {u.buffer: u.wavefronts().degree for u in uses if u.kind == "ldmatrix"}
    assert read == dict.fromkeys(("k_decayed", "q_decayed", "k_restored", "inv", "m"), 1)
    (verdict,) = rehearsal.rehearsed(lowering)
    assert verdict.holds and verdict.found.startswith("11 calls, "), verdict


@pytest.mark.parametrize("old, new, said", [
    ("    kdsl_fence_shared();\n", "", "proxy"),
    ("0x4000004000010000ull", "0x4000002000010000ull", "rejected"),  # half the way from one group of rows to the next
    ("0x4000004000010000ull", "0x8000004000010000ull", "rejected"),  # a swizzle of 64 bytes
    ("add, 1, 1, 1;", "add, 1, 1, 0;", "recurrence"),  # rows for columns
])  # fmt: skip
def test_wrong_programs_are_seen(tmp_path, monkeypatch, old, new, said):
    """A fence or a wait too few, and descriptors that say another layout."""
    assert said in rejected(monkeypatch, Lowering(planned(tmp_path)), old, new)


def test_a_product_that_is_not_waited_for_is_seen(tmp_path):
    """Over a field, where registers know which product writes them."""
    lowering = Lowering(planned(tmp_path))
    assert prove_rule_threads(lowering, {"T": 20}, 1, seed=3).verdict == FIELD
    whole = device_program(lowering)
    prepare, recurrence = whole.kernels
    text = recurrence.source.replace("wgmma.wait_group.sync.aligned 0;", "")
    assert text != recurrence.source
    changed = evolve(whole, kernels=(prepare, evolve(recurrence, source=text)))
    assert prove_rule_threads(lowering, {"T": 20}, 1, seed=3, program=changed).verdict == REJECTED


@pytest.mark.parametrize("edits, code, said", [
    ([(SMALL, "inv, m : bf16 in shared pad 8")], "E306", "through a descriptor"),
    ([("swizzle 128 ring depth via cp.async of 16 bytes", "swizzle 16 ring depth via cp.async of 16 bytes")], "E123",
     "swizzle"),
    ([("compute { state_key, solve_apply, state_query, within, state_update : wgmma.m64k16 }",
       "compute { state_key, solve_apply, state_query, within : wgmma.m64k16; state_update : mma.m16n8k16 }"),
      ("state                            : f32 in registers as wgmma.m64k16.C",
       "state : f32 in registers as mma.m16n8k16.C"),
      ("u for within, state_update       : bf16 in registers as wgmma.m64k16.A",
       "u for within : bf16 in registers as wgmma.m64k16.A; u for state_update : bf16 in registers as mma.m16n8k16.A"),
      ("k_decayed, q_decayed, k_restored : bf16 in shared swizzle 128 ring depth via cp.async of 16 bytes",
       "k_decayed, q_decayed : bf16 in shared swizzle 128 ring depth via cp.async of 16 bytes;"
       " k_restored : bf16 in shared pad 8 ring depth via cp.async of 16 bytes")], "", ""),
])  # fmt: skip
def test_operands_that_a_descriptor_cannot_name_are_refused(tmp_path, edits, code, said):
    """No swizzle, one that is none; a product by mma.sync beside those of the warpgroup is none of these."""
    try:
        made = planned(tmp_path, *edits)
    except PlanRefused as refused:
        assert code and refused.code.startswith(code) and said in str(refused.diagnostic.message)
    except AssertionError as checked:
        assert code and code in str(checked) and said in str(checked)
    else:
        assert not code
        (verdict,) = rehearsal.rehearsed(Lowering(made))
        assert verdict.holds
