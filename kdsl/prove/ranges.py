"""Intervals of integer expressions: which indices cannot leave their shape, and which quotients need no floor.

An interval (low, high) holds every value that an expression can have; None where nothing is known. Loops with
constant extents are where intervals come from, so it is arithmetic on numbers, without any assumption.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kdsl.prove import meaning as m

Interval = tuple[int, int]
TRUTH = (0, 1)
FAR = 1 << 40  # beyond it nothing is claimed: no product of two such numbers may leave 64 bits unseen


def product(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def quotient(a: Interval, b: Interval) -> Interval | None:
    """Of a floor division by something positive."""
    if b[0] <= 0:
        return None
    corners = [x // y for x in a for y in b]
    return min(corners), max(corners)


def remainder(a: Interval, b: Interval) -> Interval | None:
    """Of a floor division by something positive."""
    if b[0] <= 0:
        return None
    return a if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1)


def joined(a: Interval | None, b: Interval | None) -> Interval | None:
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


PAIRS: dict[str, Callable[[Interval, Interval], Interval | None]] = {
    "Add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "Sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "Mul": product,
    "FloorDiv": quotient,
    "FloorMod": remainder,
    "Min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "Max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}


def interval(e, known: Mapping[int, Interval]) -> Interval | None:
    """Of an integer expression; `known` are the intervals of variables by identity."""
    k = m.kind(e)
    if k == "IntImm":
        return int(e.value), int(e.value)
    if k == "Var":
        return known.get(hash(e))
    if k == "Cast" and not m.is_float(m.dtype_of(e.value)):
        return interval(e.value, known)
    if k in m.COMPARISONS or k in ("And", "Or", "Not"):
        return TRUTH
    if k == "Select":
        return joined(interval(e.true_value, known), interval(e.false_value, known))
    if k == "Call":
        name, arguments = m.called(e)
        return joined(*(interval(x, known) for x in arguments[1:])) if name in m.SELECTS else None
    if k not in PAIRS:
        return None
    a, b = interval(e.a, known), interval(e.b, known)
    found = None if a is None or b is None else PAIRS[k](a, b)
    return found if found is not None and max(map(abs, found)) < FAR else None
