"""Types and units of expressions."""

from __future__ import annotations

import pytest
from texts import CPU, MMA

from kdsl.check import check_source

GOOD = ("shared_bytes <= 95% of target.shared_bytes_per_block", "shared_bytes <= 99 KiB + 1024 bytes",
        "spills == 0",
        "shared_bytes / 1 KiB <= 227", "occupancy >= 1", "count(mma.sync) at sass >= 8",
        "workspace_bytes <= 512 MiB",
        "bank_conflicts(inv) < 2", "registers_per_thread <= 200", "dram_bytes <= 1.05 of compulsory",
        "overlapped(state_key, state_query) >= 0.5", "vector_width(inv) >= 16 bytes", "injected_waits == 0",
        "registers_per_thread at all <= v_tile * 4", "grid_x <= 65535", "same_algorithm")  # fmt: skip
BAD = [
    ("shared_bytes <= 65536", "E111"), ("shared_bytes + 1 <= 64 KiB", "E111"),
    ("shared_bytes <= 3 us", "E111"),
    ("spills", "E110"), ("spills and occupancy >= 1", "E110"), ("count(mma.sync) >= 8", "E103"),
    ("count at ptx >= 8", "E103"), ("count(mma.sync) at sas >= 8", "E101"),
    ("spills == 0 and l1_hit_rate > 0.5", "E114"),
    ("registers_per_thread at feed <= 200", "E101"), ("spils == 0", "E101"),
    ("overlapped(state_key, nothing) > 0.5", "E101"),
    ("occupancy is bounded", "E110"), ("shared_bytes in 64 KiB", "E110"), ("T >= 8", "E114"),
    ("error <= 0.01", "E110"),
    ("spills at ptx == 0", "E114"), ("gate is bounded", "E107"),
]  # fmt: skip


def rule(claim: str) -> str:
    return MMA.replace("      spills == 0\n", f"      {claim}\n")


@pytest.mark.parametrize("claim", GOOD)
def test_good(claim):
    assert check_source(rule(claim), "rule.kds") == ()


@pytest.mark.parametrize(("claim", "code"), BAD)
def test_bad(claim, code):
    found = check_source(rule(claim), "rule.kds")
    assert len(found) == 1 and found[0].code.startswith(code), [(d.code, d.message) for d in found]


def test_a_measure_only_predicate_says_where_it_belongs():
    (found,) = check_source(rule("l1_hit_rate >= 20% of 1"), "rule.kds")
    assert found.help == ("move the line to `measure`",) and found.required == "measure"


def test_error_in_ensure_only_on_a_cpu():
    (found,) = check_source(rule("error within kda.acceptance"), "rule.kds")
    assert found.code == "E114" and "sm_80, sm_90a" in found.message


@pytest.mark.parametrize("bound", [
    "1e400 KiB", "1e300 * 1e300 KiB", "1e308 KiB + 1e308 KiB", "16 KiB * (1e300 ** 2)", "1 / 0 * 1 KiB",
])  # fmt: skip
def test_numbers_beyond_all_bounds_have_no_value(bound):
    """None of them is an exception, and no verdict is made of them: a finding says so."""
    text = CPU.replace("target.stack_bytes_per_task", bound)
    assert text != CPU
    assert {d.code for d in check_source(text)} == {"E115"}
