"""Which sizes a rule takes: the operator's ranges, cut by the requirements that speak of one size alone."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod

from attrs import define, field

from kdsl.check.evaluate import decide
from kdsl.check.model import Operator, names_in
from kdsl.syntax import nodes as n

MOST_VALUES = 4096
MOST_KNOWN = 4096
_known: dict[tuple, tuple[int, ...]] = {}  # what `listed` gave, by everything that decides it


@define
class Sizes:
    """Per size of the operator, every value the rule may be called with; None where there are too many to
    list.
    """

    operator: Operator
    values: dict[str, tuple[int, ...] | None]
    env: Mapping[str, object]
    _extents: dict[str, tuple[int, ...] | None] = field(factory=dict)

    @classmethod
    def of(cls, operator: Operator, require: list[n.Claim], env: Mapping[str, object]) -> Sizes:
        predicates = [
            c.predicate for c in require if not isinstance(c.predicate, (n.Typed, n.Uses, n.Within))
        ]
        found: dict[str, tuple[int, ...] | None] = {}
        for name, size in operator.sizes.items():
            about = [
                q for p in predicates if name in names_in(p) for q in conjuncts(p) if name in names_in(q)
            ]
            if size.low is None or size.high is None or size.high - size.low >= MOST_VALUES:
                fixed = pinned(name, about, env)
                found[name] = (fixed,) if fixed is not None else None
            else:
                found[name] = listed(name, range(size.low, size.high + 1), about, env)
        return cls(operator, found, dict(env))

    def largest(self) -> dict[str, int] | None:
        """The largest value of every size that shapes tensors; None if one has no largest."""
        found = {}
        for name in self.operator.static_sizes:
            values = self.values.get(name)
            if not values:
                return None
            found[name] = max(values)
        return found

    def extents(self, index: str) -> tuple[int, ...] | None:
        """Every extent that an index may have, ascending; None if unknown."""
        if index not in self._extents:
            self._extents[index] = self._compute(index)
        return self._extents[index]

    def _compute(self, index: str) -> tuple[int, ...] | None:
        extent = self.operator.indices[index].extent
        sizes = [name for name in names_in(extent) if name in self.values]
        choices = [self.values[name] for name in sizes]
        if any(not values for values in choices) or prod(len(v) for v in choices if v) > MOST_VALUES:
            return None
        found = set()
        for values in product(*choices):
            value = decide(extent, {**self.env, **dict(zip(sizes, values, strict=False))})
            if not isinstance(value, int):
                return None
            found.add(value)
        return tuple(sorted(found))


def conjuncts(predicate: n.Node) -> list[n.Node]:
    """What `and` joins, outermost."""
    if isinstance(predicate, n.Group):
        return conjuncts(predicate.inner)
    if isinstance(predicate, n.Logical) and predicate.operator == "and":
        return [*conjuncts(predicate.left), *conjuncts(predicate.right)]
    return [predicate]


def listed(name: str, span: range, about: list[n.Expr], env: Mapping[str, object]) -> tuple[int, ...]:
    """The values of a size within its range that no predicate refuses. Rules of one text and environment share it."""
    key = (name, span, tuple(p.span.text for p in about), frozenset(env.items()))
    if key not in _known:
        fixed = pinned(name, about, env)
        values = span if fixed is None else (fixed,)
        at = dict(env)
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        _known[key] = tuple(v for v in values if v in span and _allowed(about, at, name, v))
    return _known[key]


def _allowed(predicates: list[n.Expr], env: dict, name: str, value: int) -> bool:
    env[name] = value
    return all(decide(p, env) is not False for p in predicates)


def pinned(name: str, predicates: list[n.Expr], env: Mapping[str, object]) -> int | None:
    """The one value that `name == value` among the requirements leaves."""
    for p in (q for predicate in predicates for q in conjuncts(predicate)):
        if isinstance(p, n.Comparison) and p.operator == "==":
            for side, other in ((p.left, p.right), (p.right, p.left)):
                value = decide(other, env) if isinstance(side, n.Name) and side.text == name else None
                if isinstance(value, int):
                    return value
    return None
