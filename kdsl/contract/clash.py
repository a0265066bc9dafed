"""Conditions that exclude each other word for word: `A * B <= 33` here, `A * B > 33 or T < 8` and `T >= 8` there.

Comparisons of the same two terms are held against each other whatever the terms are, so products of sizes, which no
range decides, are told apart too. Sound and quick; what it does not refute is left to the search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
        if any(not orders for orders in known.values()):
            return True
        if any(_impossible(predicate, wanted, known, env) for predicate, wanted in later):
            return True
        if len(later) == len(pending):
            return False
        pending = later


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
