"""The search for a call: what it finds is a call, and what it refutes has none (by brute force)."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdsl.check.driver import check_loaded
from kdsl.check.files import load_text
from kdsl.contract.conditions import Condition, truth
from kdsl.contract.satisfy import search
from kdsl.source.span import SourceFile

OPERATOR = """operator toy {
  sizes {
    B
    D in 16..64
  }
  inputs { x : [B, D] of bf16, f32 }
  outputs { y : [B, D] of like x }
  options { mode in [plain, scaled] }
  laws { B % 2 == 0 or mode is plain }
  indices {
    n in B parallel
    d in D
  }
  views {
    xx[d] = x[n, d]
    yy[d] = y[n, d]
  }
  part all { write : yy[d] = xx[d] }
}
"""
RULE = """rule r schedules toy on cpu {
  require {
    %s
  }
  kernel k computes all { grid { task : n } }
}
"""


def conditions(*clauses: str):
    result = check_loaded(load_text(SourceFile("r.kds", OPERATOR + RULE % "\n    ".join(clauses))), None)
    operator = result.library.operators["toy"]
    rule = next(
        d for d in load_text(SourceFile("r.kds", RULE % "\n    ".join(clauses))).trees[0].declarations
    )
    return operator, [Condition(c.predicate) for c in rule.items[0].items]


def brute(operator, wanted) -> bool:
    every = product(range(0, 110), range(16, 65), ("plain", "scaled"), ("bf16", "f32"))
    laws = [Condition(c.predicate) for c in operator.laws]
    return any(
        all(truth(c.predicate, {"B": b, "D": d, "mode": m, "dtype.x": x}) is True for c in (*wanted, *laws))
        for b, d, m, x in every
    )


ATOMS = st.sampled_from(
    ["D == 32", "D % 16 == 0", "D % 48 == 0", "D > 63", "D < 17", "B == 3", "B % 2 == 1", "B >= 7", "B < 2",
     "B in [5, 6]",
     "D in [20, 40]", "mode is scaled", "not mode is scaled", "x : bf16", "B * D > 9000", "B == D",
     "B + D < 18", "D != 16", "B * 2 == 7", "B / 3 == 2", "B / 3 % 2 == 1", "not (B < 3 or B > 4)", "D < B",
     "B * 3 - 1 == D", "100 % B == 3", "B % 2 == 1 or D == 48", "B + 1 < 3 * B - 8", "not B in [0, 1, 2, 3]"]
)  # fmt: skip


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(ATOMS, min_size=1, max_size=4, unique=True))
def test_against_brute_force(clauses):
    operator, wanted = conditions(*clauses)
    outcome = search(operator, wanted, {})
    if outcome.call is not None:
        known = {**outcome.call}
        assert all(truth(c.predicate, known) is True for c in wanted)
        assert all(truth(law.predicate, known) is True for law in operator.laws)
    if outcome.refuted:
        assert not brute(operator, wanted)
    two = ("B * D", "B + D", "B == D", "D < B", "== D")
    if outcome.call is None and not any(part in c for c in clauses for part in two):
        assert outcome.refuted, clauses


@pytest.mark.parametrize("clauses",
                         [("D > 64",), ("D % 16 == 0", "D % 3 == 2", "D < 20"),
                          ("mode is scaled", "B % 2 == 1"),
                                     ("B * D < 0",), ("x : bf16", "x : f32"),
                          ("B > 8 and B < 4",), ("B > 8", "B < 4"), ("B % 4 == 0 and B % 4 == 1",),
                          ("B * 2 == 7",), ("B + D == 70 and B > 60",), ("B == 0 and B * D > 5",),
                          ("B == D and B == 5",), ("D > B and B > 64",), ("B % 2 == 1 and not mode is plain",),
                          ("B / 3 == 2 and B % 9 == 0",), ("not (B <= 5 or B > 5)",)])  # fmt: skip
def test_refuted(clauses):
    assert search(*conditions(*clauses), {}).refuted


def test_what_cannot_be_proved_is_not_said():
    outcome = search(*conditions("B * D == 1000003"), {})
    assert outcome.call is None and not outcome.refuted


def test_the_law_may_stand_between(tmp_path):
    """Sizes that laws tie to each other: the clauses about one of them refute all the same."""
    laws = OPERATOR.replace("    B\n", "    B, C\n").replace("laws {", "laws { C % B == 0; ")
    source = SourceFile("r.kds", laws + RULE % "B > 8 and B < 4")
    assert [d.code for d in check_loaded(load_text(source), None).diagnostics] == ["E503"]


@pytest.mark.parametrize(("clause", "codes"), [
    ("D % (width * 64) == 0 and D < width", ["E503"]), ("D * width <= 512 and D > 32", ["W505"]),
    ("D % width == 0", []), ("B * D == 1000003", ["W506"]),
])  # fmt: skip
def test_at_every_choose_point(clause, codes):
    rule = (RULE % clause).replace("  kernel", "  choose { width in [8, 16] default 8 }\n  kernel")
    rule = rule.replace("{ task : n } }", "{ task : n }\n    compute { write : vector d by width } }")
    found = check_loaded(load_text(SourceFile("r.kds", OPERATOR + rule)), None).diagnostics
    assert [d.code for d in found] == codes, found
