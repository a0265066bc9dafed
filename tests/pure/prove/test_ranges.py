"""Intervals hold every value of an expression, so a check that they drop could never have failed."""

from __future__ import annotations

from itertools import product

import pytest

from kdsl.prove.ranges import PAIRS, joined

INTERVALS = [(-3, -1), (-2, 2), (0, 0), (0, 5), (1, 3), (4, 4)]
MEANING = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "FloorMod": lambda a, b: a % b,
    "Min": min,
    "Max": max,
}


@pytest.mark.parametrize("name", PAIRS)
def test_an_interval_holds_every_value_and_claims_nothing_of_divisors_that_may_be_zero(name):
    claimed = 0
    for a, b in product(INTERVALS, INTERVALS):
        found = PAIRS[name](a, b)
        if found is None:
            assert name in ("FloorDiv", "FloorMod") and b[0] <= 0
            continue
        claimed += 1
        values = [MEANING[name](x, y) for x in range(a[0], a[1] + 1) for y in range(b[0], b[1] + 1)]
        assert found[0] <= min(values) and max(values) <= found[1]
    assert claimed >= 12


def test_a_choice_can_be_either():
    assert joined((0, 2), (5, 6)) == (0, 6) and joined(None, (0, 1)) is None
