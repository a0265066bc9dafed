"""Values of one whole number that stand for all: conditions on it repeat with a period between a few break points.

An expression of `+`, `-`, `*`, `/` and `%` with constants, in one number x, is a * x plus something that repeats with
a period. So a comparison with a constant changes near one break point, and repeats everywhere else: the values near
every break point, and one period after each, meet every combination of truths that any value meets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil, floor, gcd, inf, lcm

from attrs import frozen

from kdsl.check.evaluate import decide
from kdsl.check.graph import strip
from kdsl.check.model import names_in
from kdsl.contract.conditions import atoms
from kdsl.syntax import nodes as n

MOST_VALUES = 20_000


@frozen
class Progression:
    """slope * x plus what repeats every `period` and stays within `spread` of 0; from x = `start` on."""

    slope: Fraction
    period: int
    spread: Fraction
    start: int = 0


def stand_ins(
    name: str, predicates: Iterable[n.Node], bounds: tuple[float, float], env: Mapping[str, object]
) -> list[int] | None:
    """Values of the number within its bounds that stand for all of them; None where that is not known."""
    low, high = bounds
    if low == -inf:
        return None
    if high - low <= MOST_VALUES:
        return list(range(ceil(low), floor(high) + 1))
    breaks: list[tuple[int, int]] = []
    period = 1
    for atom in (a for p in predicates for a in atoms(p)):
        if decide(atom, env) is not None or name not in names_in(atom):
            continue
        found = _breaks(atom, name, env)
        if found is None:
            return None
        period = lcm(period, found[0])
        breaks += found[1]
    spans = [(low, low + period), *((a - period, b + period) for a, b in breaks)]
    if high < inf:
        spans.append((high - period, high))
    inside = [(max(ceil(a), ceil(low)), floor(min(b, high))) for a, b in spans]
    if sum(max(b - a + 1, 0) for a, b in inside) > MOST_VALUES:
        return None
    return sorted({x for a, b in inside for x in range(a, b + 1)})


def _breaks(atom: n.Node, name: str, env: Mapping[str, object]) -> tuple[int, list[tuple[int, int]]] | None:
    """(period, the stretches within which the truth of an atom does not repeat)."""
    if isinstance(atom, n.Contains):
        values = decide(atom.container, env)
        item = _progression(atom.item, name, env)
        if item is None or not isinstance(values, tuple) or not all(isinstance(v, int) for v in values):
            return None
        return item.period, [_crossing(item, Fraction(v)) for v in values]
    if not isinstance(atom, n.Comparison):
        return None
    left, right = _progression(atom.left, name, env), _progression(atom.right, name, env)
    if left is None or right is None:
        return None
    difference = _sum(left, right, -1)
    return difference.period, [_crossing(difference, Fraction(0))]


def _crossing(line: Progression, value: Fraction) -> tuple[int, int]:
    """Outside of this stretch the line stays on one side of the value, or repeats."""
    if line.slope == 0:
        return (0, line.start)
    ends = sorted((value + line.spread * sign) / line.slope for sign in (-1, 1))
    return min(0 if line.start else floor(ends[0]), floor(ends[0])) - 1, max(line.start, ceil(ends[1])) + 1


def _progression(expr: n.Node, name: str, env: Mapping[str, object]) -> Progression | None:
    node = strip(expr)
    value = decide(node, env)
    if value is not None:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) == inf:
            return None
        return Progression(Fraction(0), 1, abs(Fraction(value)))
    if isinstance(node, n.Name):
        return Progression(Fraction(1), 1, Fraction(0)) if node.text == name else None
    if isinstance(node, n.Signed):
        inner = _progression(node.operand, name, env)
        return inner and (_scaled(inner, Fraction(-1)) if node.sign == "-" else inner)
    if not isinstance(node, n.Binary) or node.operator not in "+-*/%":
        return None
    left, right = _progression(node.left, name, env), _progression(node.right, name, env)
    if left is None or right is None:
        return None
    if node.operator in "+-":
        return _sum(left, right, 1 if node.operator == "+" else -1)
    constants = decide(node.left, env), decide(node.right, env)
    if node.operator == "*":
        side, factor = (right, constants[0]) if constants[0] is not None else (left, constants[1])
        return _scaled(side, Fraction(factor)) if factor is not None else None
    if isinstance(constants[1], int) and constants[1] > 0:
        return _divided(left, node.operator, constants[1])
    if isinstance(constants[0], int) and isinstance(strip(node.right), n.Name):
        return Progression(Fraction(0), 1, Fraction(abs(constants[0]) + 1), abs(constants[0]) + 1)
    return None


def _sum(a: Progression, b: Progression, sign: int) -> Progression:
    return Progression(a.slope + sign * b.slope, lcm(a.period, b.period), a.spread + b.spread, max(a.start, b.start))


def _scaled(line: Progression, factor: Fraction) -> Progression:
    return Progression(line.slope * factor, line.period, line.spread * abs(factor), line.start)


def _divided(line: Progression, operator: str, by: int) -> Progression | None:
    """Quotient or remainder of whole numbers: the period grows until a turn of it is a multiple of `by`."""
    turn = line.slope * line.period
    if turn.denominator != 1 or line.spread.denominator != 1 and line.slope == 0:
        return None
    period = line.period * (by // gcd(int(turn), by) if turn else 1)
    if operator == "%":
        return Progression(Fraction(0), period, Fraction(by), line.start)
    return Progression(line.slope / by, period, line.spread / by + 1, line.start)
