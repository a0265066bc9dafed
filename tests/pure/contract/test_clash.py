"""Conditions that exclude each other word for word; by brute force, none that a call meets is refuted."""

from __future__ import annotations

from itertools import product

import pytest

from kdsl.contract.clash import clash
from kdsl.contract.conditions import Condition, truth
from kdsl.source.span import SourceFile
from kdsl.syntax import nodes as n
from kdsl.syntax.parse import parse

RULE = "rule r schedules toy on cpu {{\n  require {{\n    {}\n  }}\n}}\n"


def conditions(*clauses: str) -> list[Condition]:
    (rule,) = parse(SourceFile("r.kds", RULE.format("\n    ".join(clauses)))).declarations
    (block,) = (item for item in rule.items if isinstance(item, n.Block))
    return [Condition(claim.predicate) for claim in block.items]


@pytest.mark.parametrize("clauses", [
    ("A * B <= 33", "A * B > 33"),
    ("A * B <= M / 4", "A * B > M / 4"),
    ("A * B <= 33 and T >= 8 * B", "A * B > 33 or T < 8 * B"),
    ("33 >= A * B", "A*B > 33"),
    ("A * B == 4", "not (A * B == 4)"),
    ("A * B < C", "A * B == C"),
    ("A < B", "B < A"),
    ("A <= B", "B <= A", "A != B"),
    ("not (A < B or B < A)", "A != B"),
    ("A * B < C", "(A * B > C or B * C < A)", "B * C >= A"),
    ("A * B <= 2", "A * B > 3"),
    ("A * B < 2", "3 <= A * B"),
    ("A * B < 2", "A * B == 2"),
    ("A * B == 2", "A * B == 3"),
    ("A * B <= M / 50", "M == 0 or A * B > M / 40"),  # of which only the second is left where M is 132
])  # fmt: skip
def test_refuted(clauses):
    found = conditions(*clauses)
    assert clash(found, {"M": 132})
    for a, b, c, t in product(range(4), repeat=4):  # and rightly so
        env = {"A": a, "B": b, "C": c, "T": t, "M": 132}
        assert not all(truth(one.predicate, env) is True for one in found)


@pytest.mark.parametrize("clauses", [
    ("A * B <= 33", "A * B >= 33"),
    ("A * B <= 33 and T >= 8 * B", "A * B > 33 or T >= 8 * B"),
    ("A * B <= 33", "B * A > 33"),  # other words: left to the search
    ("A * B <= 33 or T >= 8", "A * B > 33 or T < 8"),
    ("A <= B", "B <= A"),
    ("A * B < C", "A * B <= C"),
    ("A * B <= 3", "A * B > 2"),
    ("A * B <= 3", "A * B >= 3"),
    ("A * B < 3", "A * B > 2"),  # of whole numbers none; of others some
    ("M == 0 or A * B > 3", "A * B <= 2"),
])  # fmt: skip
def test_left_to_the_search(clauses):
    assert not clash(conditions(*clauses), {})


def test_a_condition_that_must_not_hold():
    first, second = conditions("A * B <= 33", "A * B <= 33")
    assert clash([first, Condition(second.predicate, False)], {})
    assert not clash([Condition(first.predicate, False), Condition(second.predicate, False)], {})
