"""Static evaluation: the value of an expression under known sizes, options, choices and target fields.

Integers divide downwards, as indices do. A name without a value makes the result undecided, and only that:
`and`, `or` and `if` decide as soon as the parts they need are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from attrs import frozen

from kdsl.syntax import nodes as n

Value = int | float | bool | str | tuple

UNITS = {
    "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "us": 1e-6, "ms": 1e-3, "GHz": 1e9, "TBps": 1e12,
    "TFLOPs": 1e12,
}  # fmt: skip


@frozen
class Undecided(Exception):
    """Some names have no value here."""

    names: frozenset[str]

    def __str__(self) -> str:
        return "no value for " + ", ".join(sorted(self.names))


@frozen
class NotStatic(Exception):
    """The expression is of a kind that has no value before a run, or is wrong (division by zero)."""

    node: n.Node
    reason: str

    def __str__(self) -> str:
        return self.reason


COMPARE = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<=": lambda a, b: a <= b, ">=": lambda a,
    b: a >= b,
    "<": lambda a, b: a < b, ">": lambda a, b: a > b,
}  # fmt: skip


def ceildiv(a: int, b: int) -> int:
    return -(-a // b)


AT_LAUNCH = (
    "unit_stride",
    "dense",
)  # of strides: the launcher holds every call to them, or refuses it by name
FUNCTIONS = {"min": min, "max": max, "ceildiv": ceildiv, "abs": abs}


def evaluate(expr: n.Expr, env: Mapping[str, Value]) -> Value:
    """The value of `expr`, with names looked up in `env`.

    A dotted name is looked up whole (`target.sms`), `given(x)` as `given.x`. Raises Undecided or NotStatic.
    """
    method = _METHODS.get(type(expr))
    if method is None:
        raise NotStatic(expr, f"{type(expr).__name__.lower()} has no static value")
    return method(expr, env)


def decide(expr: n.Expr, env: Mapping[str, Value]) -> Value | None:
    """As `evaluate`, with None for what cannot be decided."""
    try:
        return evaluate(expr, env)
    except (Undecided, NotStatic):
        return None


def _name(e: n.Name, env):
    if e.text in env:
        return env[e.text]
    if e.text in ("true", "false"):
        return e.text == "true"
    raise Undecided(frozenset([e.text]))


def _binary(e: n.Binary, env):
    a, b = _both(e.left, e.right, env)
    if not (isinstance(a, (int, float)) and isinstance(b, (int, float))):
        raise NotStatic(e, f"`{e.operator}` needs numbers")
    try:
        return _finite(e, _computed(e, a, b))
    except ZeroDivisionError:
        raise NotStatic(e, "division by zero") from None
    except OverflowError:
        raise NotStatic(e, "the number is too large") from None


def _computed(e: n.Binary, a, b):
    if e.operator == "+":
        return a + b
    if e.operator == "-":
        return a - b
    if e.operator == "*":
        return _product(e, a, b)
    if e.operator == "%":
        return a % b
    if e.operator == "**":
        return _power(e, a, b)
    return a // b if isinstance(a, int) and isinstance(b, int) else a / b


def _finite(e: n.Expr, value):
    """The value; infinities have no place in a static expression."""
    if isinstance(value, float) and not isfinite(value):
        raise NotStatic(e, "the number is too large")
    return value


def _product(e, a, b):
    value = a * b
    if isinstance(value, int) and value.bit_length() > 1 << 16:
        raise NotStatic(e, "the number is too large")
    return value


def _power(e, a, b):
    if isinstance(a, int) and isinstance(b, int) and abs(a) > 1 and b > 256:
        raise NotStatic(e, "the number is too large")
    if isinstance(a, int) and a.bit_length() > 4096:
        raise NotStatic(e, "the number is too large")
    value = a**b
    if isinstance(value, complex):
        raise NotStatic(e, "a root of a negative number")
    return value


def _both(left, right, env):
    """Both values, or every missing name of the two."""
    try:
        first = evaluate(left, env)
    except Undecided as undecided:
        raise Undecided(undecided.names | _missing(right, env)) from None
    return first, evaluate(right, env)


def _missing(expr: n.Expr, env) -> frozenset[str]:
    try:
        evaluate(expr, env)
    except Undecided as undecided:
        return undecided.names
    return frozenset()


def _comparison(e: n.Comparison, env):
    a, b = _both(e.left, e.right, env)
    try:
        return COMPARE[e.operator](a, b)
    except TypeError:
        raise NotStatic(e, f"{a!r} and {b!r} cannot be compared") from None


def _logical(e: n.Logical, env):
    settles = e.operator == "or"
    missing: set[str] = set()
    for side in (e.left, e.right):
        try:
            if bool(evaluate(side, env)) == settles:
                return settles
        except Undecided as undecided:
            missing |= undecided.names
    if missing:
        raise Undecided(frozenset(missing))
    return not settles


def _call(e: n.Call, env):
    if e.function.text in AT_LAUNCH:
        return True
    if e.function.text == "given" and len(e.arguments) == 1 and isinstance(e.arguments[0], n.Name):
        key = f"given.{e.arguments[0].text}"
        if key in env:
            return env[key]
        raise Undecided(frozenset([key]))
    if e.function.text == "span" and len(e.arguments) == 3:
        return _span(e, *(evaluate(a, env) for a in e.arguments))
    function = FUNCTIONS.get(e.function.text)
    if function is None:
        raise NotStatic(e, f"`{e.function.text}` has no static value")
    try:
        return function(*[evaluate(a, env) for a in e.arguments])
    except (TypeError, ZeroDivisionError, OverflowError, ValueError) as problem:
        raise NotStatic(e, f"`{e.function.text}`: {problem}") from None


def _span(e: n.Call, low, high, step) -> tuple[int, ...]:
    if not all(isinstance(x, int) for x in (low, high, step)) or step < 1:
        raise NotStatic(e, "`span` takes integers and a step of at least 1")
    if (high - low) // step >= 1 << 16:
        raise NotStatic(e, "`span` has too many values")
    return tuple(range(low, high + 1, step))


def _number(e: n.Number, env):
    try:
        value = e.value
    except ValueError:
        raise NotStatic(e, "the number is too large") from None
    if value == float("inf"):
        raise NotStatic(e, "the number is too large")
    return value


def _quantity(e: n.Quantity, env):
    try:
        number = float(e.number) if any(c in e.number for c in ".e") else int(e.number)
        return _finite(e, number * UNITS[e.unit])
    except (ValueError, OverflowError):
        raise NotStatic(e, "the number is too large") from None


def _contains(e: n.Contains, env):
    item, container = _both(e.item, e.container, env)
    if not isinstance(container, tuple):
        raise NotStatic(e, "`in` needs a list")
    return item in container


def _is(e: n.IsOption, env):
    value = evaluate(e.subject, env)
    return value == e.option.text or str(value).lower() == e.option.text


def _signed(e: n.Signed, env):
    value = evaluate(e.operand, env)
    if not isinstance(value, (int, float)):
        raise NotStatic(e, f"`{e.sign}` needs a number")
    return -value if e.sign == "-" else value


def _share(e, env, divisor):
    of = evaluate(e.of, env)
    if not isinstance(of, (int, float)):
        raise NotStatic(e, "a share needs a number")
    try:
        return _finite(e, float(e.number) / divisor * of)
    except OverflowError:
        raise NotStatic(e, "the number is too large") from None


_METHODS = {
    n.Number: _number,
    n.Quantity: _quantity,
    n.Name: _name,
    n.Text: lambda e, env: e.value,
    n.Group: lambda e, env: evaluate(e.inner, env),
    n.Sequence: lambda e, env: tuple(evaluate(i, env) for i in e.items),
    n.Call: _call,
    n.Binary: _binary,
    n.Signed: _signed,
    n.Comparison: _comparison,
    n.IsOption: _is,
    n.Contains: _contains,
    n.Logical: _logical,
    n.Not: lambda e, env: not evaluate(e.operand, env),
    n.Conditional: lambda e, env: evaluate(e.then if evaluate(e.condition, env) else e.otherwise, env),
    n.Percent: lambda e, env: _share(e, env, 100.0),
    n.Ratio: lambda e, env: _share(e, env, 1.0),
}
