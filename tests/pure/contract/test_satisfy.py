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
    every = product(range(0, 70), range(16, 65), ("plain", "scaled"), ("bf16", "f32"))
    laws = [Condition(c.predicate) for c in operator.laws]
    return any(
        all(truth(c.predicate, {"B": b, "D": d, "mode": m, "dtype.x": x}) is True for c in (*wanted, *laws))
        for b, d, m, x in every
    )


ATOMS = st.sampled_from(
    ["D == 32", "D % 16 == 0", "D % 48 == 0", "D > 63", "D < 17", "B == 3", "B % 2 == 1", "B >= 7", "B < 2",
     "B in [5, 6]",
     "D in [20, 40]", "mode is scaled", "not mode is scaled", "x : bf16", "B * D > 9000", "B == D",
     "B + D < 18", "D != 16"]
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
    if outcome.call is None and not any("*" in c or "+" in c or "B == D" in c for c in clauses):
        assert outcome.refuted, clauses


@pytest.mark.parametrize("clauses",
                         [("D > 64",), ("D % 16 == 0", "D % 3 == 2", "D < 20"),
                          ("mode is scaled", "B % 2 == 1"),
                                     ("B * D < 0",), ("x : bf16", "x : f32")])  # fmt: skip
def test_refuted(clauses):
    assert search(*conditions(*clauses), {}).refuted


def test_what_cannot_be_proved_is_not_said():
    outcome = search(*conditions("B * D == 1000003"), {})
    assert outcome.call is None and not outcome.refuted
