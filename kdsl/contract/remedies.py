"""Why a condition does not hold for a call, and what would change that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen

from kdsl.check.evaluate import NotStatic, Undecided, evaluate
from kdsl.check.graph import strip
from kdsl.check.model import Operator, names_in, walk
from kdsl.contract.calls import value_text
from kdsl.contract.conditions import truth
from kdsl.syntax import nodes as n


@frozen
class Reason:
    """`found` and `needed` in words: `T = 127 is not a multiple of 128; pad to 128`."""

    found: str
    needed: str
    remedy: str = ""

    def __str__(self) -> str:
        return self.found + (f"; {self.remedy}" if self.remedy else "")


def reasons(predicate: n.Node, env: Mapping[str, object], operator: Operator) -> tuple[Reason, ...]:
    """Every part of a condition that is not known to hold; nothing if it holds."""
    return tuple(_reasons(predicate, env, operator))


def _reasons(predicate: n.Node, env: Mapping[str, object], operator: Operator) -> Iterator[Reason]:
    value = truth(predicate, env)
    if value is True:
        return
    if isinstance(predicate, n.Group):
        yield from _reasons(predicate.inner, env, operator)
    elif isinstance(predicate, n.Logical) and predicate.operator == "and":
        left = list(_reasons(predicate.left, env, operator))
        yield from left
        right = truth(predicate.right, env)
        if right is False or not left or (right is None and value is None):
            yield from _reasons(predicate.right, env, operator)
    elif value is None:
        yield unknown(predicate, env, operator)
    elif isinstance(predicate, n.Typed):
        yield from _dtypes(predicate, env)
    elif isinstance(predicate, n.Comparison):
        yield _comparison(predicate, env, operator)
    elif isinstance(predicate, n.IsOption):
        yield _option(predicate, env)
    elif isinstance(predicate, n.Contains):
        yield _contains(predicate, env, operator)
    elif isinstance(predicate, n.Not):
        yield Reason(f"{_said(predicate.operand)} holds", _said(predicate))
    else:
        yield Reason(values(predicate, env), _said(predicate))


def _said(node: n.Node) -> str:
    return " ".join(node.span.text.split())


def values(node: n.Node, env: Mapping[str, object]) -> str:
    """`gate = softplus, T = 127`: what the names in it are, or the text itself."""
    known = [f"{name} = {value_text(env[name])}" for name in names_in(node) if name in env]
    known += [
        f"{call.arguments[0].text} is {'' if env.get(key) else 'not '}given"
        for call, key in _given(node)
        if key in env
    ]
    return ", ".join(known) or _said(node)


def _given(node: n.Node):
    for call in walk(node):
        if isinstance(call, n.Call) and call.function.text == "given" and call.arguments:
            argument = call.arguments[0]
            if isinstance(argument, n.Name):
                yield call, f"given.{argument.text}"


def unknown(predicate: n.Node, env: Mapping[str, object], operator: Operator) -> Reason:
    """A call that leaves a value open meets no requirement about it."""
    try:
        evaluate(predicate, env) if not isinstance(predicate, n.Typed) else None
    except NotStatic as problem:
        return Reason(str(problem), _said(predicate))
    except Undecided as undecided:
        names = sorted(undecided.names)
        ways = [_way(name, operator) for name in names]
        return Reason(
            f"{', '.join(names)} is not known", _said(predicate), "say it with " + " and ".join(ways)
        )
    return Reason("a dtype is not known", _said(predicate))


def _way(name: str, operator: Operator) -> str:
    if name in operator.sizes:
        return f"--shape {name}=..."
    if name.startswith("given."):
        return f"--set {name.partition('.')[2]}=given or =absent"
    return f"--set {name}=..."


def _dtypes(predicate: n.Typed, env: Mapping[str, object]) -> Iterator[Reason]:
    allowed = [
        str(env.get(f"dtype.{d.name}", f"like {d.name}")) if d.like else d.name for d in predicate.dtypes
    ]
    for name in predicate.names:
        found = env.get(f"dtype.{name.text}")
        if found is not None and found not in allowed:
            yield Reason(
                f"{name.text} is {found}",
                f"{name.text} : {', '.join(allowed)}",
                f"cast {name.text} to {allowed[0]}",
            )


def _option(predicate: n.IsOption, env: Mapping[str, object]) -> Reason:
    name = _said(predicate.subject)
    value = value_text(env.get(name, "unknown"))
    return Reason(f"{name} is {value}", f"{name} is {predicate.option.text}")


def _contains(predicate: n.Contains, env: Mapping[str, object], operator: Operator) -> Reason:
    item = evaluate(predicate.item, env)
    allowed = evaluate(predicate.container, env)
    shown = ", ".join(value_text(v) for v in allowed)
    above = sorted(v for v in allowed if isinstance(v, int) and isinstance(item, int) and v > item)
    name = _said(predicate.item)
    remedy = f"pad to {above[0]}" if above and name in operator.sizes else ""
    return Reason(f"{_valued(predicate.item, item)} is none of {shown}", _said(predicate), remedy)


def _valued(node: n.Node, value: object) -> str:
    text = _said(node)
    if not names_in(node):
        return value_text(value)
    return text if text == value_text(value) else f"{text} = {value_text(value)}"


def _comparison(predicate: n.Comparison, env: Mapping[str, object], operator: Operator) -> Reason:
    left, right = strip(predicate.left), predicate.right
    bound = evaluate(right, env)
    if isinstance(left, n.Binary) and left.operator == "%" and predicate.operator == "==" and bound == 0:
        return _multiple(left, env, operator, _said(predicate))
    value = evaluate(left, env)
    relation = {"==": "is not", "!=": "is", "<=": "is more than", "<": "is not less than",
                ">=": "is less than",
                ">": "is not more than"}[predicate.operator]  # fmt: skip
    found = f"{_valued(left, value)} {relation} {_valued(right, bound)}"
    return Reason(found, _said(predicate), _change(left, value, predicate.operator, bound, operator))


def _change(left: n.Node, value: object, comparison: str, bound: object, operator: Operator) -> str:
    """What to do about a size or a scalar that misses its bound."""
    if not isinstance(left, n.Name):
        return ""
    name = left.text
    if name in operator.sizes:
        if (
            comparison in ("==", ">=", ">")
            and isinstance(value, int)
            and isinstance(bound, int)
            and value < bound
        ):
            return f"pad to {bound + (comparison == '>')}"
        return ""
    if name in operator.options and comparison in (">=", "<=", "=="):
        return f"the rule takes {name} {comparison} {value_text(bound)}"
    return ""


def _multiple(left: n.Binary, env: Mapping[str, object], operator: Operator, needed: str) -> Reason:
    value, by = evaluate(left.left, env), evaluate(left.right, env)
    found = f"{_valued(left.left, value)} is not a multiple of {_valued(left.right, by)}"
    name = strip(left.left)
    if (
        isinstance(name, n.Name)
        and name.text in operator.sizes
        and isinstance(value, int)
        and isinstance(by, int)
    ):
        return Reason(found, needed, f"pad to {-(-value // by) * by}")
    return Reason(found, needed)
