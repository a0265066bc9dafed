"""Clauses that speak of stages and tensors: true ones hold, false ones fail, others are unknown."""

from __future__ import annotations

import pytest

from kdsl.contract.verdict import Status
from kdsl.driver.compile import ContractFailed, build
from kdsl.driver.contract import broken, verdicts
from kdsl.source.diagnostic import Evidence

from .rules import lowered, lowering_of, padded, staged, text_of

HOLD = """
    uses mma.sync.m16n8k16.bf16 in state_key, solve_apply, state_query, within, state_update
    uses HMMA in state_key
    bank_conflicts(k_decayed) == 1
    bank_conflicts <= 2
    vector_width(k_decayed) >= 2 bytes
    overlapped(state_key, state_key) >= 0.9
    injected_waits == 0
    occupancy >= 1
    count(mma.sync) at ptx == 84
    count(HMMA) at sass == 84
    registers_per_thread <= 255
"""
FAIL = {
    "uses shfl.sync in state_key": "not in state_key",
    "uses mma.sync.m16n8k16.f16 in state_key": "not in state_key",
    "uses mma.sync.m16n8k16.bf16 in state_key, residual": "not in residual",
    "uses wgmma.mma_async in state_key": "not in state_key",
    "bank_conflicts(k_decayed) == 1": "8",
    "bank_conflicts == 1": "8",
    "count(mma.sync) at ptx == 83": "84",
    "overlapped(state_key, write_o) >= 0.1": "0",
    "occupancy >= 33": "blocks",
}
UNKNOWN = {
    "vector_width(sw) >= 2 bytes": "`sw` is in registers",
    "dram_bytes <= 1.5 * compulsory": "profiler",
    "overlapped(gram_kk, state_key) >= 0.5": "in no kernel together",
}


@pytest.fixture(autouse=True)
def _compiler(compiler):
    """CUDA's tools, or the tests are skipped."""


def by_clause(lowering) -> dict:
    return {found.clause: found for found in verdicts(lowering)}


def test_true_clauses_hold(tmp_path):
    clauses = [line.strip() for line in HOLD.strip().splitlines()]
    found = by_clause(lowered(padded(tmp_path, 8, "\n    ".join(clauses)), "padded", "sm_90a"))
    assert {clause: found[clause].status for clause in clauses} == dict.fromkeys(clauses, Status.HOLDS)
    assert found["bank_conflicts <= 2"].evidence is Evidence.SIMULATED
    assert found["uses HMMA in state_key"].evidence is Evidence.BINARY
    assert any("nvdisasm" in tool for tool in found["uses HMMA in state_key"].tools)


def test_false_clauses_fail_and_open_ones_do_not_hold(tmp_path):
    clauses = "\n    ".join([*FAIL, *UNKNOWN])
    lowering = lowered(padded(tmp_path, 0, clauses), "padded", "sm_90a")
    found = by_clause(lowering)
    for clause, text in FAIL.items():
        assert found[clause].status is Status.FAILS, clause
        assert text in found[clause].found, clause
    for clause, reason in UNKNOWN.items():
        assert found[clause].status is Status.UNKNOWN and reason in found[clause].note, found[clause]
    assert {v.clause for v in broken(tuple(found.values()))} >= {*FAIL, *UNKNOWN}
    with pytest.raises(ContractFailed, match="bank_conflicts"):
        build([lowering.plan], tmp_path / "padded.kdsb")
    assert not (tmp_path / "padded.kdsb").exists()


def test_the_same_algorithm_is_a_proof(tmp_path):
    text = text_of("lane_columns").replace("rule lane_columns", "rule proved")
    (tmp_path / "proved.kds").write_text(
        text.replace("  ensure {", "  ensure { same_algorithm }\n  ensure {"), encoding="utf-8"
    )
    found = by_clause(lowered(tmp_path / "proved.kds", "proved", "sm_90a"))["same_algorithm"]
    assert (found.status, found.evidence) == (Status.HOLDS, Evidence.FIELD)


def test_facts_of_a_stage_are_its_own():
    recurrence = staged("mma_bounded", "sm_90a")["recurrence"]
    assert recurrence.uses("mma.sync", "state_key").value is True
    assert recurrence.uses("mma.sync", "residual").value is False
    assert recurrence.uses("cp.async", "state_key").value is False
    first = {f"k_decayed_copy_first_{step}" for step in range(3)}  # of a ring of four
    assert set(recurrence.feeding("state_key")) == {"k_decayed_copy", *first}


def test_shipped_rules_decide_every_clause():
    fused = ("wgmma_fused", "wgmma_fused_f32", "wgmma_bounded")
    for rule in ("mma_bounded", "mma_any_gate", "mma_few_heads", *fused, "lane_columns"):
        found = verdicts(lowering_of(rule, "sm_90a"))
        assert found and all(v.status is not Status.UNKNOWN for v in found)
