"""A proof that no call meets some conditions: case by case over what has few values, then over the numbers.

In each case three things refute, each alone enough: a condition that is wrong for the values known; ranges, narrowed
by comparisons until they are empty or leave a condition no way to hold; and one size alone, where its candidates
(`progressions`) stand for all its values. What is not refuted is not said to be possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from kdsl.check.graph import strip
from kdsl.check.model import Operator
from kdsl.contract.conditions import Condition, dtypes_of, interval, outcomes, ranges_of, truth, variables
from kdsl.contract.progressions import stand_ins
from kdsl.syntax import nodes as n

MOST_CASES = 256
MOST_ROUNDS = 12
TURNED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
MIRRORED = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def refutes(operator: Operator, conditions: Iterable[Condition], env: Mapping[str, object]) -> bool:
    """Whether no call meets the conditions; `env` holds what is known."""
    parts = [part for c in conditions for part in split(c.predicate, c.wanted)]
    return _Cases(operator).refuted(parts, dict(env))


def split(predicate: n.Node, wanted: bool = True) -> list[Condition]:
    """The conditions that must all be met: through `and`, `not` and parentheses."""
    node = strip(predicate)
    if isinstance(node, n.Not):
        return split(node.operand, not wanted)
    if isinstance(node, n.Logical) and (node.operator == "and") is wanted:
        return [*split(node.left, wanted), *split(node.right, wanted)]
    return [Condition(node, wanted)]


class _Cases:
    def __init__(self, operator: Operator):
        self.operator = operator
        self.left = MOST_CASES

    def refuted(self, parts: list[Condition], env: dict[str, object]) -> bool:
        self.left -= 1
        if self.left < 0:
            return False
        known = _simplified(parts, env)
        if known is None or _numbers_refute(self.operator, known, env):
            return True
        name, values = self.next(known, env)
        return bool(values) and all(self.refuted(known, {**env, name: value}) for value in values)

    def next(self, parts: list[Condition], env: Mapping[str, object]) -> tuple[str, tuple]:
        """The name with the fewest values that a condition still speaks of, and those values."""
        found = [(name, self.values(name)) for name in sorted({x for p in parts for x in variables(p.predicate)})
                 if name not in env]  # fmt: skip
        finite = [(name, values) for name, values in found if values]
        return min(finite, key=lambda item: len(item[1]), default=("", ()))

    def values(self, name: str) -> tuple:
        option = self.operator.options.get(name)
        if option is not None:
            return () if option.kind == "scalar" else tuple(option.values)
        kind, _, port = name.partition(".")
        if kind == "given":
            return (False, True)
        return dtypes_of(self.operator, port) if kind == "dtype" else ()


def _simplified(parts: Iterable[Condition], env: Mapping[str, object]) -> list[Condition] | None:
    """What is left to be met; None where a condition is wrong."""
    found, pending = [], list(parts)
    while pending:
        part = pending.pop()
        value = truth(part.predicate, env)
        if value is not None:
            if value is not part.wanted:
                return None
            continue
        node = part.predicate
        if isinstance(node, n.Logical):
            sides = [node.left, node.right]
            open_ = [side for side in sides if truth(side, env) is None]
            if len(open_) == 1:  # the other side leaves it to this one
                pending += split(open_[0], part.wanted)
                continue
        found.append(part)
    return found


def _numbers_refute(operator: Operator, parts: list[Condition], env: dict[str, object]) -> bool:
    """Fixes what the conditions pin, and narrows ranges, until nothing changes."""
    ranges = dict(ranges_of(operator))
    ranges.update({name: (-inf, inf) for name, o in operator.options.items() if o.kind == "scalar"})
    for _ in range(MOST_ROUNDS):
        before = dict(ranges)
        for part in parts:
            _narrow(part, operator, ranges, env)
        if any(low > high for low, high in ranges.values()):
            return True
        for name, (low, high) in ranges.items():
            if low == high and name in operator.sizes:
                env[name] = int(low)
        known = _simplified(parts, env)
        if known is None or any(_impossible(part, ranges, env) for part in known):
            return True
        parts = known
        if ranges == before:
            break
    return any(_alone(name, parts, ranges[name], env) for name in operator.sizes if name not in env)


def _comparison(part: Condition) -> tuple[n.Node, str, n.Node] | None:
    node = part.predicate
    if not isinstance(node, n.Comparison):
        return None
    return strip(node.left), node.operator if part.wanted else TURNED[node.operator], strip(node.right)


def _narrow(part: Condition, operator: Operator, ranges: dict[str, tuple[float, float]], env) -> None:
    """The range of a number that stands alone on one side of a comparison."""
    found = _comparison(part)
    if found is None:
        return
    left, relation, right = found
    for side, other, way in ((left, right, relation), (right, left, MIRRORED[relation])):
        if not isinstance(side, n.Name) or side.text not in ranges:
            continue
        bound = interval(other, ranges, env)
        if bound is None:
            continue
        step = 1 if side.text in operator.sizes else 0
        low, high = ranges[side.text]
        if way in ("==", ">=", ">"):
            low = max(low, bound[0] + (step if way == ">" else 0))
        if way in ("==", "<=", "<"):
            high = min(high, bound[1] - (step if way == "<" else 0))
        ranges[side.text] = (low, high)


def _impossible(part: Condition, ranges: Mapping[str, tuple[float, float]], env: Mapping[str, object]) -> bool:
    return not isinstance(part.predicate, n.Typed) and part.wanted not in outcomes(part.predicate, ranges, env)


def _alone(name: str, parts: list[Condition], bounds: tuple[float, float], env: dict[str, object]) -> bool:
    """Whether the conditions that speak of one size and nothing else unknown exclude all its values."""
    own = [p for p in parts if {x for x in variables(p.predicate) if x not in env} == {name}]
    if not own:
        return False
    candidates = stand_ins(name, [p.predicate for p in own], bounds, env)
    if candidates is None:
        return False
    return not any(all(truth(p.predicate, {**env, name: v}) is p.wanted for p in own) for v in candidates)
