"""What a condition speaks of, whether it holds, and which outcomes the ranges of the sizes leave it."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from attrs import frozen

from kdsl.check.evaluate import AT_LAUNCH, NotStatic, Undecided, decide, evaluate
from kdsl.check.graph import strip
from kdsl.check.model import Operator, names_in, walk
from kdsl.check.sizes import conjuncts
from kdsl.syntax import nodes as n


@frozen
class Condition:
    """A predicate that must be true (or, with `wanted` false, must not be)."""

    predicate: n.Node
    wanted: bool = True


_VARIABLES: dict[int, tuple[n.Node, frozenset[str]]] = {}  # by the node's id; the node stays alive with it
MOST_PREDICATES = 10_000


def variables(predicate: n.Node) -> frozenset[str]:
    """Names whose values decide it: sizes and options, `given.x`, `dtype.x`."""
    found = _VARIABLES.get(id(predicate))
    if found is None:
        if len(_VARIABLES) >= MOST_PREDICATES:
            _VARIABLES.clear()
        found = _VARIABLES[id(predicate)] = predicate, frozenset(_spoken_of(predicate))
    return found[1]


def _spoken_of(predicate: n.Node) -> set[str]:
    if isinstance(predicate, n.Typed):
        like = {f"dtype.{d.name}" for d in predicate.dtypes if d.like}
        return {f"dtype.{name.text}" for name in predicate.names} | like
    found: set[str] = set()
    stack = [predicate]
    while stack:
        node = stack.pop()
        if isinstance(node, n.Call) and node.function.text == "given":
            found |= {f"given.{a.text}" for a in node.arguments if isinstance(a, n.Name)}
            continue
        if isinstance(node, n.Call) and node.function.text in AT_LAUNCH:
            continue
        if isinstance(node, n.Name):
            found.add(node.text)
        for attribute in getattr(node, "__attrs_attrs__", ()):
            value = getattr(node, attribute.name)
            if isinstance(value, n.Node):
                stack.append(value)
            elif isinstance(value, tuple):
                stack += [item for item in value if isinstance(item, n.Node)]
    return found


def truth(predicate: n.Node, env: Mapping[str, object]) -> bool | None:
    """True, False, or None where something is not known."""
    if isinstance(predicate, n.Typed):
        return _typed(predicate, env)
    value = decide(predicate, env)
    return None if value is None else bool(value)


def _typed(predicate: n.Typed, env: Mapping[str, object]) -> bool | None:
    known = True
    allowed = set()
    for dtype in predicate.dtypes:
        allowed.add(env.get(f"dtype.{dtype.name}") if dtype.like else dtype.name)
    for name in predicate.names:
        value = env.get(f"dtype.{name.text}")
        if value is None:
            known = False
        elif value not in allowed:
            return None if None in allowed else False
    return True if known else None


def valueless(predicate: n.Node, env: Mapping[str, object]) -> bool:
    """Whether a part that must hold has no value whatever the call: `K == 16 / 0`."""
    for part in conjuncts(predicate):
        if isinstance(part, n.Comparison):
            try:
                evaluate(part, env)
            except NotStatic:
                return True
            except Undecided:
                pass
    return False


def dtypes_of(operator: Operator, port: str) -> tuple[str, ...]:
    found = operator.ports.get(port)
    if found is None:
        return ()
    followed = [d for other in found.like if other != port for d in dtypes_of(operator, other)]
    return tuple(dict.fromkeys((*followed, *found.dtypes)))


def atoms(predicate: n.Node) -> list[n.Node]:
    """Comparisons and tests without `and`, `or`, `not` and parentheses around them."""
    found, pending = [], [predicate]
    while pending:
        node = pending.pop()
        if isinstance(node, n.Logical):
            pending += [node.left, node.right]
        elif isinstance(node, n.Not):
            pending.append(node.operand)
        elif isinstance(node, n.Group):
            pending.append(node.inner)
        else:
            found.append(node)
    return found


def numbers_in(atom: n.Node, env: Mapping[str, object]) -> set[float]:
    """Every constant of the atom, and the values of the names that are known."""
    found: set[float] = set()
    for node in walk(atom):
        value = env.get(node.text) if isinstance(node, n.Name) else decide(node, {})
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found.add(value)
    return found


def moduli_of(atom: n.Node, name: str, env: Mapping[str, object]) -> set[int]:
    found = set()
    for node in walk(atom):
        if isinstance(node, n.Binary) and node.operator in "%/" and name in names_in(node.left):
            value = decide(node.right, env)
            if isinstance(value, int) and value > 0:
                found.add(value)
    return found


def is_direct(atom: n.Node, name: str) -> bool:
    """`X op constant`, `X % m op constant`, `X in [...]`: candidates of the number stand for all values."""
    if isinstance(atom, n.Contains):
        return isinstance(strip(atom.item), n.Name)
    if not isinstance(atom, n.Comparison):
        return False
    for side in (strip(atom.left), strip(atom.right)):
        if isinstance(side, n.Name) and side.text == name:
            return True
        if isinstance(side, n.Binary) and side.operator == "%" and isinstance(strip(side.left), n.Name):
            return True
    return False


Ranges = Mapping[str, tuple[float, float]]  # of a number: the least and the largest value it may have


def ranges_of(operator: Operator) -> dict[str, tuple[float, float]]:
    """The ranges that the operator gives its sizes."""
    return {
        name: (float(size.low if size.low is not None else 0), float(size.high if size.high is not None else inf))
        for name, size in operator.sizes.items()
    }


def outcomes(expr: n.Node, ranges: Ranges, env: Mapping[str, object]) -> frozenset[bool]:
    """Which truth values the condition can have, from ranges alone; never leaves one out that is possible."""
    both = frozenset((False, True))
    known = decide(expr, env)
    if isinstance(known, bool):
        return frozenset((known,))
    if isinstance(expr, n.Group):
        return outcomes(expr.inner, ranges, env)
    if isinstance(expr, n.Not):
        return frozenset(not x for x in outcomes(expr.operand, ranges, env))
    if isinstance(expr, n.Logical):
        left, right = outcomes(expr.left, ranges, env), outcomes(expr.right, ranges, env)
        join = (lambda a, b: a and b) if expr.operator == "and" else (lambda a, b: a or b)
        return frozenset(join(a, b) for a in left for b in right)
    if not isinstance(expr, n.Comparison):
        return both
    left, right = interval(expr.left, ranges, env), interval(expr.right, ranges, env)
    if left is None or right is None:
        return both
    (a, b), (c, d) = left, right
    table = {"<": (b < c, a >= d), "<=": (b <= c, a > d), ">": (a > d, b <= c), ">=": (a >= d, b < c),
             "==": (a == b == c == d, b < c or a > d), "!=": (b < c or a > d, a == b == c == d)}  # fmt: skip
    always, never = table[expr.operator]
    return frozenset((True,)) if always else frozenset((False,)) if never else both


def interval(expr: n.Node, ranges: Ranges, env: Mapping[str, object]) -> tuple[float, float] | None:
    """Bounds of a number; None where nothing is known."""
    value = decide(expr, env)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value), float(value)
    if isinstance(expr, n.Group):
        return interval(expr.inner, ranges, env)
    if isinstance(expr, n.Name):
        return ranges.get(expr.text)
    if not isinstance(expr, n.Binary) or expr.operator not in "+-*%":
        return None
    left, right = interval(expr.left, ranges, env), interval(expr.right, ranges, env)
    if left is None or right is None:
        return None
    return _combined(expr.operator, left, right)


def _combined(operator: str, left, right) -> tuple[float, float] | None:
    (a, b), (c, d) = left, right
    if operator == "+":
        return a + c, b + d
    if operator == "-":
        return a - d, b - c
    if operator == "%":
        return (0.0, d - 1) if a >= 0 and c > 0 and d < inf else None
    if min(a, c) < 0:
        return None
    return a * c, (0.0 if 0 in (b, d) else b * d)
