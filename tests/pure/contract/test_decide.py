"""Claims to verdicts: unknown is never a pass, and a verdict is known no better than its facts."""

from __future__ import annotations

import pytest

from kdsl.check.driver import check_loaded
from kdsl.check.files import load_text
from kdsl.check.rules import rule_at
from kdsl.contract.decide import Decided, decide, quantity
from kdsl.contract.predicates import TABLE
from kdsl.contract.verdict import Fact, Status, weakest
from kdsl.source.diagnostic import Evidence
from kdsl.source.span import SourceFile

TEXT = """operator two {
  sizes {
    B
    D in 16..256
  }
  inputs { x : [B, D] of f32 }
  outputs { y : [B, D] of f32 }
  indices {
    n in B parallel
    d in D
  }
  views {
    xx[d] = x[n, d]
    yy[d] = y[n, d]
  }
  part first { scale : z[d] = xx[d] * 2.0 }
  part second { write : yy[d] = z[d] }
}

rule r schedules two on sm_80 {
  kernel one computes first {
    grid { x : n }
    place { z : f32 in workspace }
    ensure {
      registers_per_thread <= 64
      uses ld.global.v4 in scale
    }
  }
  kernel two computes second { grid { x : n } }
  ensure {
    spills == 0
    occupancy >= 2
    count(shfl.sync) at ptx == 0
    shared_bytes <= 95% of target.shared_bytes_per_block and spills == 0
  }
  measure { p95_latency <= 900 us }
}
"""
BINARY = Evidence.BINARY


@pytest.fixture(scope="module")
def point():
    library = check_loaded(load_text(SourceFile("rule.kds", TEXT)), None).library
    return rule_at(library.rules["r"], library.targets["sm_80"], {}, library.tactics)


def facts(**changes):
    known = {"one/spills": 0, "two/spills": 0, "one/occupancy": 4, "two/occupancy": 2, "one/shared_bytes": 0,
             "two/shared_bytes": 1024, "one/registers_per_thread": 40, "two/registers_per_thread": 90,
             "one/count(shfl.sync) at ptx": 0, "two/count(shfl.sync) at ptx": 0,
             "uses ld.global.v4 in scale": True} | changes  # fmt: skip
    return {k: Fact(v, "", BINARY, "ptxas 13.0") for k, v in known.items() if v is not None}


def statuses(point, known):
    return {v.clause: v.status for v in decide(point, known, {})}


def test_all_hold(point):
    verdicts = decide(point, facts(), {})
    assert [v.status for v in verdicts[:-1]] == [Status.HOLDS] * 6 and verdicts[-1].status is Status.PENDING
    assert {v.evidence for v in verdicts[:-1]} == {BINARY} and verdicts[0].tools == ("ptxas 13.0",)
    assert [v.kernel for v in verdicts] == [None] * 4 + ["one", "one", None]
    assert verdicts[1].found == "2" and verdicts[1].needed == ">= 2"


def test_nothing_known_is_no_pass(point):
    verdicts = decide(point, {}, {})
    assert {v.status for v in verdicts} == {Status.UNKNOWN, Status.PENDING}
    assert not any(v.holds for v in verdicts) and {v.evidence for v in verdicts} == {Evidence.UNKNOWN}
    assert all(v.note for v in verdicts)


def test_one_kernel_missing_is_unknown(point):
    assert statuses(point, facts(**{"two/spills": None}))["spills == 0"] is Status.UNKNOWN


@pytest.mark.parametrize(
    ("fact", "value", "clause"),
    [
        ("two/spills", 8, "spills == 0"),
        ("one/occupancy", 1, "occupancy >= 2"),
        ("one/registers_per_thread", 65, "registers_per_thread <= 64"),
        ("uses ld.global.v4 in scale", False, "uses ld.global.v4 in scale"),
        ("one/count(shfl.sync) at ptx", 3, "count(shfl.sync) at ptx == 0"),
    ],
)
def test_each_fails_alone(point, fact, value, clause):
    found = statuses(point, facts(**{fact: value}))
    assert found[clause] is Status.FAILS
    assert [c for c, s in found.items() if s is Status.FAILS and "and" not in c] == [clause]
    assert len(Decided(decide(point, facts(**{fact: value}), {})).fails) >= 1


def test_a_false_half_decides_a_conjunction(point):
    known = facts(**{"one/shared_bytes": None, "two/spills": 4})
    assert (
        statuses(point, known)["shared_bytes <= 95% of target.shared_bytes_per_block and spills == 0"]
        is Status.FAILS
    )


def test_a_verdict_is_as_weak_as_its_weakest_fact():
    assert weakest(()) is Evidence.PROVED
    assert weakest((Evidence.PROVED, Evidence.SIMULATED, BINARY)) is Evidence.SIMULATED


def test_every_predicate_says_who_decides_it():
    for entry in TABLE.values():
        assert entry.decided in ("plan", "binary", "run", "gpu") and entry.summary
        assert (entry.decided == "gpu") <= ("measure" in entry.where)


@pytest.mark.parametrize("seconds, text", [
    (7.7344e-05, "77.34 us"), (0.00118006, "1.18 ms"), (2.5, "2.5 s"), (1e-3, "1 ms"), (0.0, "0 us"),
])  # fmt: skip
def test_times_have_units(seconds, text):
    assert quantity(seconds, "s") == text
