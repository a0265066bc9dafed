"""Bank conflicts of every shared access, from the lowered TIR: against what the emulator counts."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from kdsl.driver.emulation import LoweredProgram
from kdsl.emulate import calls
from kdsl.emulate.program import try_program
from kdsl.inspect.lanes import Pattern, patterns
from kdsl.inspect.shared import SharedUse, shared_uses, with_tensors
from kdsl.inspect.stages import conflict_fact, launch_uses, stage_names
from kdsl.source.diagnostic import Evidence

from .rules import RULES, lowered, lowering_of, padded

EMULATED = {"load": "ld", "store": "st"}


def uses_of(lowering, kernel: str) -> list[SharedUse]:
    for plan, scheduled in zip(lowering.plan.kernels, lowering.scheduled, strict=True):
        if plan.name == kernel:
            found = shared_uses(scheduled, lowering.plan.target, stage_names(plan))
            return list(with_tensors(found, plan))
    raise KeyError(kernel)


@pytest.mark.parametrize("rule", RULES)
def test_degrees_agree_with_the_emulator(rule):
    """Stage by stage and kind by kind. A line of the emulator may hold two accesses of which lanes take
    different branches, which it counts as one: there it may see more than there is, never less."""
    lowering = lowering_of(rule, "sm_90a")
    rng, options = np.random.default_rng(0), dict(lowering.plan.specialization.options)
    if lowering.plan.operator.name == "kda.decode":
        call = calls.decode_call(rng, {**calls.SIZES, "T": 2}, options)  # the second token is fetched in the first step
    else:
        call = calls.chunk_call(rng, calls.SIZES, (128, 32), options)  # two steps of each of four groups of warps
    trial = try_program(LoweredProgram(lowering), call, target="sm_90a")
    assert trial.verdict == "pass", trial.explain()
    compared = 0
    for plan, source in zip(lowering.plan.launches, lowering.sources, strict=True):
        ours, theirs = defaultdict(float), defaultdict(float)
        for use in launch_uses(lowering, plan)[0]:
            ours[use.stage, use.kind] = max(ours[use.stage, use.kind], use.wavefronts().degree)
        for t in trial.emulation.shared:
            if t.kernel == source.symbol and t.worst_ideal:
                key = source.lines.stage_of(t.line), EMULATED.get(t.access, t.access)
                theirs[key] = max(theirs[key], t.worst / t.worst_ideal)
        assert set(ours) == set(theirs)
        differ = {key for key in ours if ours[key] != theirs[key]}
        assert all(theirs[key] >= ours[key] for key in differ) and len(differ) <= 1, (plan.name, differ)
        compared += len(ours)
    assert compared >= 9


@pytest.mark.parametrize("pad, degree", [(8, 1.0), (0, 8.0), (16, 2.0)])
def test_the_pad_of_an_operand_decides(tmp_path, pad, degree):
    """Rows of 256 bytes: without a pad all eight rows of a matrix lie in the same banks."""
    lowering = lowered(padded(tmp_path, pad), "padded", "sm_90a")
    (found,) = [u for u in uses_of(lowering, "recurrence") if u.stage == "state_key" and u.kind == "ldmatrix"]
    assert found.tensors == ("k_decayed",)
    assert found.wavefronts().degree == degree


def test_a_matrix_that_cannot_be_loaded_is_unknown():
    """Rows of 264 bytes are no multiple of 16."""
    (rows,) = patterns(np.arange(32) * 264, np.asarray(True))
    assert SharedUse("s", "b", "ldmatrix", 16, (rows,)).wavefronts() is None


def test_copies_past_l1_do_not_conflict_and_others_do():
    """As Nsight Compute counts them: wavefronts_h200.csv."""
    (column,) = patterns(np.arange(32) * 128, np.asarray(True))
    fronts = {width: SharedUse("s", "b", "cp.async", width, (column,)).wavefronts() for width in (4, 8, 16)}
    assert [fronts[width].count for width in (4, 8, 16)] == [32, 32, 4]
    assert fronts[16].degree == 1 and fronts[4].degree == 32


def test_lanes_that_do_not_run_do_not_conflict():
    rows = np.arange(32) * 128
    (all_lanes,) = patterns(rows, np.asarray(True))
    (half,) = patterns(rows, np.arange(32) < 4)
    use = SharedUse("s", "b", "ld", 4)
    assert use._of(all_lanes, 4).count == 32 and use._of(half, 4).count == 4
    assert patterns(rows, np.asarray(False)) == ()


def test_machine_code_that_is_wider_than_the_text():
    """Four-byte reads of a column of a tile of rows of 33 words conflict nowhere; joined to 16 bytes they
    cannot be: rows are not aligned. With rows of 36 words they can, and conflict as 16-byte reads do."""
    lane = np.arange(32)
    narrow = SharedUse("s", "b", "ld", 4, patterns(lane * 33 * 4, np.asarray(True)))
    assert narrow.wavefronts().degree == 1 and narrow.wavefronts(16) is None
    wide = SharedUse("s", "b", "ld", 4, patterns(lane * 36 * 4, np.asarray(True)))
    assert wide.wavefronts().degree == 4 and wide.wavefronts(16).degree == 1


def test_one_unknown_access_makes_the_worst_unknown():
    known = SharedUse("s", "b", "ld", 4, (Pattern(tuple(range(0, 128, 4)), 0xFFFFFFFF),))
    unknown = SharedUse("s", "b", "wgmma", 0, (), "`f` has no lane addresses")
    assert conflict_fact([(known, 1.0)]).value == 1.0
    fact = conflict_fact([(known, 1.0), (unknown, None)])
    assert fact.value is None and fact.evidence is Evidence.UNKNOWN and "no lane addresses" in fact.tool
