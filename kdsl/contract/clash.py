"""Conditions that exclude each other word for word: `A * B <= 33` here, `A * B > 33 or T < 8` and `T >= 8` there.

Comparisons of the same two terms are held against each other whatever the terms are, so products of sizes, which no
range decides, are told apart too; comparisons of one term with numbers leave it a range (`A * B <= 26`, `A * B > 92`).
Sound and quick; what it does not refute is left to the search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from kdsl.check.evaluate import decide
from kdsl.check.graph import strip
from kdsl.contract.conditions import Condition
from kdsl.syntax import nodes as n

WAYS = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}  # orders that a comparison allows
MIRRORED = str.maketrans("<>", "><")
Known = dict[tuple[str, str], frozenset]  # orders of two terms that are left


def clash(conditions: Iterable[Condition], env: Mapping[str, object]) -> bool:
    """Whether no values of their terms meet all the conditions."""
    known: Known = {}
    pending = [(condition.predicate, condition.wanted) for condition in conditions]
    while True:
        later = [part for predicate, wanted in pending for part in _told(predicate, wanted, known, env)]
        if any(not orders for orders in known.values()) or _without_values(known):
            return True
        if any(_impossible(predicate, wanted, known, env) for predicate, wanted in later):
            return True
        if len(later) == len(pending):
            return False
        pending = later


def _without_values(known: Known) -> bool:
    """Whether a term is left no value between the numbers that it is compared with."""
    ends: dict[str, tuple[tuple[float, bool], tuple[float, bool]]] = {}  # lowest and highest, and whether beyond them
    for (left, right), orders in known.items():
        if (number := _number(left)) is not None:
            term, orders = right, frozenset("".join(orders).translate(MIRRORED))
        elif (number := _number(right)) is not None:
            term = left
        else:
            continue
        low, high = ends.get(term, ((-inf, False), (inf, False)))
        if "<" not in orders:
            low = max(low, (number, "=" not in orders))
        if ">" not in orders:
            high = min(high, (number, "=" in orders))
        ends[term] = low, high
    return any(low[0] > high[0] or low[0] == high[0] and (low[1] or not high[1]) for low, high in ends.values())


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _told(predicate: n.Node, wanted: bool, known: Known, env: Mapping[str, object]) -> list[tuple[n.Node, bool]]:
    """Adds what a condition says for certain to `known`; what is left of it: an alternative whose side is open."""
    node = strip(predicate)
    if isinstance(node, n.Not):
        return _told(node.operand, not wanted, known, env)
    if isinstance(node, n.Logical):
        sides = [node.left, node.right]
        if (node.operator == "and") is wanted:
            return [part for side in sides for part in _told(side, wanted, known, env)]
        open_ = [side for side in sides if not _impossible(side, wanted, known, env)]
        return _told(open_[0], wanted, known, env) if len(open_) == 1 else [(node, wanted)]
    found = _orders(node, wanted, env)
    if found is not None:
        terms, orders = found
        known[terms] = known.get(terms, frozenset("<=>")) & orders
    return []


def _impossible(predicate: n.Node, wanted: bool, known: Known, env: Mapping[str, object]) -> bool:
    node = strip(predicate)
    value = decide(node, env)
    if isinstance(value, bool):
        return value is not wanted
    if isinstance(node, n.Not):
        return _impossible(node.operand, not wanted, known, env)
    if isinstance(node, n.Logical):
        sides = [_impossible(side, wanted, known, env) for side in (node.left, node.right)]
        return any(sides) if (node.operator == "and") is wanted else all(sides)
    found = _orders(node, wanted, env)
    return found is not None and not known.get(found[0], frozenset("<=>")) & found[1]


def _orders(node: n.Node, wanted: bool, env: Mapping[str, object]) -> tuple[tuple[str, str], frozenset] | None:
    """The two terms of a comparison as texts, and the orders that it leaves them."""
    if not isinstance(node, n.Comparison):
        return None
    left, right = _term(node.left, env), _term(node.right, env)
    orders = frozenset(WAYS[node.operator])
    if not wanted:
        orders = frozenset("<=>") - orders
    if left > right:
        left, right, orders = right, left, frozenset("".join(orders).translate(MIRRORED))
    return (left, right), orders


def _term(expr: n.Expr, env: Mapping[str, object]) -> str:
    value = decide(expr, env)
    return str(value) if value is not None else "".join(strip(expr).span.text.split())
