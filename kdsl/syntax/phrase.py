"""Nodes within a line as text: expressions, claims, lists, attributes.

An operand is put in parentheses where the grammar needs them, so that a tree made by a program prints right
too; a tree that was parsed holds its parentheses as Group nodes and gets no others.
"""

from __future__ import annotations

from kdsl.syntax import nodes as n

CONDITIONAL, OR, AND, NOT, COMPARISON, SUM, PRODUCT, UNARY, POWER, POSTFIX, ATOM = range(11)
BINARY = {"+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "%": PRODUCT}


def level(node: n.Expr) -> int:
    """How tightly a node holds together; the grammar's rule it comes from."""
    if isinstance(node, n.Binary):
        return BINARY.get(node.operator, POWER)
    if isinstance(node, n.Logical):
        return OR if node.operator == "or" else AND
    for kinds, tightness in (
        (n.Conditional, CONDITIONAL), (n.Not, NOT), ((n.Comparison, n.IsOption, n.Contains), COMPARISON),
        ((n.Signed, n.Percent, n.Ratio, n.Reduction), UNARY), (n.AtLevel, POSTFIX),
    ):  # fmt: skip
        if isinstance(node, kinds):
            return tightness
    return ATOM


def _reach(node: n.Expr) -> int:
    """The loosest operator that the end of a node would take to itself: it has no closing sign of its own."""
    if isinstance(node, n.Conditional):
        return CONDITIONAL
    if isinstance(node, n.Reduction):
        return min(PRODUCT, _reach(node.body))
    last = {
        n.Binary: "right", n.Logical: "right", n.Not: "operand", n.Comparison: "right",
        n.Contains: "container",
        n.Signed: "operand", n.Percent: "of", n.Ratio: "of",
    }.get(type(node))  # fmt: skip
    return _reach(getattr(node, last)) if last else ATOM


def _operand(node: n.Expr, least: int, before: int | None = None) -> str:
    """An operand that must hold together as tightly as `least`; `before` is the operator that follows it."""
    text = expression(node)
    if level(node) < least or (before is not None and _reach(node) <= before):
        return f"({text})"
    return text


def expression(node: n.Expr) -> str:
    """One expression, or a range, on one line."""
    return _EXPRESSIONS[type(node)](node)


def listed(items) -> str:
    return ", ".join(expression(item) for item in items)


def names(ids: tuple[n.Id, ...]) -> str:
    return ", ".join(item.text for item in ids)


def _binary(node: n.Binary) -> str:
    tightness = level(node)
    if node.operator == "**":
        return f"{_operand(node.left, POSTFIX)} ** {_operand(node.right, UNARY)}"
    return (
        f"{_operand(node.left, tightness, tightness)} {node.operator} {_operand(node.right, tightness + 1)}"
    )


def _logical(node: n.Logical) -> str:
    tightness = level(node)
    return (
        f"{_operand(node.left, tightness, tightness)} {node.operator} {_operand(node.right, tightness + 1)}"
    )


def _comparison(node: n.Comparison) -> str:
    return f"{_operand(node.left, SUM, COMPARISON)} {node.operator} {_operand(node.right, SUM)}"


def _conditional(node: n.Conditional) -> str:
    parts = (expression(part) for part in (node.condition, node.then, node.otherwise))
    return "if {} then {} else {}".format(*parts)


def _reduction(node: n.Reduction) -> str:
    binders = ", ".join(map(_binder, node.binders))
    body = expression(node.body)
    if level(node.body) < PRODUCT and not isinstance(node.body, n.Conditional):
        body = f"({body})"
    return f"{node.operator} over {binders} of {body}"


def _binder(node: n.Binder) -> str:
    return node.name.text if node.bound is None else f"{node.name.text} < {_bound(node.bound)}"


def _bound(node: n.Expr, least: int = SUM) -> str:
    """Sums and products of atoms; anything else in parentheses, since the word `of` follows."""
    if isinstance(node, n.Binary) and BINARY.get(node.operator, CONDITIONAL) >= least:
        tightness = BINARY[node.operator]
        return f"{_bound(node.left, tightness)} {node.operator} {_bound(node.right, tightness + 1)}"
    return expression(node) if level(node) == ATOM else f"({expression(node)})"


_EXPRESSIONS = {
    n.Number: lambda x: x.text,
    n.Quantity: lambda x: f"{x.number} {x.unit}",
    n.Name: lambda x: x.text,
    n.Text: lambda x: f'"{x.value}"',
    n.Reference: lambda x: f"{x.name.text}[{listed(x.indices)}]",
    n.Group: lambda x: f"({expression(x.inner)})",
    n.Sequence: lambda x: f"[{listed(x.items)}]",
    n.Call: lambda x: f"{x.function.text}({listed(x.arguments)})",
    n.Baseline: lambda x: f"baseline {x.name.text}",
    n.Binary: _binary,
    n.Signed: lambda x: f"{x.sign}{_operand(x.operand, UNARY)}",
    n.Comparison: _comparison,
    n.IsOption: lambda x: f"{_operand(x.subject, SUM, COMPARISON)} is {x.option.text}",
    n.Contains: lambda x: f"{_operand(x.item, SUM, COMPARISON)} in {_operand(x.container, SUM)}",
    n.Logical: _logical,
    n.Not: lambda x: f"not {_operand(x.operand, NOT)}",
    n.Conditional: _conditional,
    n.Reduction: _reduction,
    n.Percent: lambda x: f"{x.number}% of {_operand(x.of, UNARY)}",
    n.Ratio: lambda x: f"{x.number} of {_operand(x.of, UNARY)}",
    n.AtLevel: lambda x: f"{_operand(x.subject, POSTFIX)} at {x.level.text}",
    n.Range: lambda x: f"{expression(x.low)}..{expression(x.high)}",
}


# ---- parts of lines ----------------------------------------------------------------------------------------


def dtypes(items: tuple[n.Dtype, ...]) -> str:
    return ", ".join(f"like {item.name}" if item.like else item.name for item in items)


def shape(items) -> str:
    return f"[{listed(items)}]"


def predicate(node: n.Predicate) -> str:
    if isinstance(node, n.Typed):
        return f"{names(node.names)} : {dtypes(node.dtypes)}"
    if isinstance(node, n.Uses):
        return f"uses {node.instruction.text} in {names(node.stages)}"
    if isinstance(node, n.Within):
        return f"{expression(node.subject)} within {node.acceptance.text}"
    return expression(node)


def axes(items: tuple[n.Axis, ...]) -> str:
    return ", ".join(
        joined(item.index.text, optional("by", item.by), "packed" if item.packed else "") for item in items
    )


def attribute(node: n.Attribute) -> str:
    words = [node.kind]
    if node.name is not None:
        words.append(node.name.text)
    if node.axes:
        words.append(axes(node.axes))
    if node.names:
        words.append(names(node.names))
    if node.value is not None:
        words.append(("of " if node.name is not None else "") + expression(node.value))
    return " ".join(words)


def optional(word: str, node) -> str:
    """`word expression`, or nothing."""
    return f"{word} {expression(node)}" if node is not None else ""


def index(node: n.Index) -> str:
    parts = [
        f"{names(node.names)} in {expression(node.extent)}",
        optional("by", node.by),
        optional("up to", node.most),
        node.mode or "",
    ]
    if node.slot is not None:
        parts.append(f"stored at {_bound(node.slot)} of {expression(node.slots)}")
    return joined(*parts)


def joined(*parts: str) -> str:
    """The parts that are not empty, a space between."""
    return " ".join(part for part in parts if part)
