"""What a choice, an option, a size or a parameter may be: ranges and lists of known values."""

from __future__ import annotations

from kdsl.check.evaluate import NotStatic, Undecided, evaluate
from kdsl.check.findings import Findings
from kdsl.source.diagnostic import Diagnostic, Label
from kdsl.syntax import nodes as n

MOST_VALUES = 4096


def domain_values(values, env) -> tuple | None:
    """Every value of a range, a list or a function such as `span(8, 256, 8)`; None for no domain.

    Raises Undecided or NotStatic.
    """
    if values is None:
        return None
    if isinstance(values, n.Range):
        low, high = _end(values.low, env), _end(values.high, env)
        if high - low >= MOST_VALUES:
            raise NotStatic(values, f"more than {MOST_VALUES} values")
        return tuple(range(low, high + 1))
    if isinstance(values, n.Sequence):
        return tuple(
            item.text if isinstance(item, n.Name) and item.text not in env else evaluate(item, env)
            for item in values.items
        )
    if isinstance(values, n.Name) and values.text not in env:
        return (values.text,)
    found = evaluate(values, env)
    return found if isinstance(found, tuple) else (found,)


def _end(expr: n.Expr, env) -> int:
    value = evaluate(expr, env)
    if not isinstance(value, int) or isinstance(value, bool):
        raise NotStatic(expr, "the ends of a range are integers")
    return value


def range_ends(values: n.Range, what: str, findings: Findings) -> tuple[int, int] | None:
    """The two ends, however far apart, or a finding and None."""
    try:
        low, high = _end(values.low, {}), _end(values.high, {})
    except (Undecided, NotStatic) as problem:
        findings.add(Diagnostic("E115", f"the ends of {what}: {problem}", values.span))
        return None
    if low > high:
        findings.add(_empty(values, what))
        return None
    return low, high


def _empty(values, what: str) -> Diagnostic:
    return Diagnostic("E117", f"{what} has no values", values.span, observed=values.span.text,
                      required="at least one value", help=("the lower end comes first: `1..4`",))  # fmt: skip


def known_domain(values, what: str, findings: Findings) -> tuple | None:
    """The values of a domain that needs nothing from outside it, or a finding and None."""
    try:
        found = domain_values(values, {})
    except Undecided as undecided:
        names = ", ".join(sorted(undecided.names))
        findings.add(Diagnostic("E115",
                                f"the values of {what} must be known as written, and `{names}` is not",
                         values.span, help=("write numbers, names or `span(low, high, step)`",)))  # fmt: skip
        return None
    except NotStatic as problem:
        findings.add(Diagnostic("E115", f"the values of {what}: {problem}", problem.node.span))
        return None
    if not found:
        findings.add(_empty(values, what))
        return None
    return _consistent(found, values, what, findings)


def _consistent(found: tuple, values, what: str, findings: Findings) -> tuple | None:
    kinds = {"a name" if isinstance(v, str) else "a number" for v in found}
    if len(kinds) > 1 or any(isinstance(v, (bool, float, tuple)) for v in found):
        findings.add(Diagnostic("E117", f"{what} takes integers or names, not a mixture", values.span))
        return None
    if isinstance(values, n.Sequence) and len(set(found)) < len(found):
        first: dict = {}
        for item, value in zip(values.items, found, strict=False):
            if value in first:
                findings.add(Diagnostic("E102", f"value `{value}` of {what} is listed twice", item.span,
                                        labels=(Label(first[value], "first here"),),
                                        help=("remove one",)))  # fmt: skip
            first.setdefault(value, item.span)
        return tuple(first)
    return found
