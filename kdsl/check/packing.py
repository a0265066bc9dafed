"""`n, c packed`: a launch axis of stored slots. What an operator must say of an index for a grid to enumerate them."""

from __future__ import annotations

from attrs import frozen

from kdsl.check.findings import listed
from kdsl.check.graph import strip
from kdsl.check.model import Index, Operator, names_in
from kdsl.check.rules import substitute
from kdsl.source.diagnostic import Diagnostic, Evidence, Label
from kdsl.source.span import Span
from kdsl.syntax import nodes as n


def refused_packing(operator: Operator, line: n.GridLine, position: int) -> Diagnostic | None:
    """E127: why the grid cannot enumerate the slots of the packed index at `position` of a line; None if it can.

    A block finds the values of both indices from its slot alone. So the slots of one value of the parallel index lie
    next to each other, in the order of the sequential index; that they follow in the order of the parallel index is
    for a proof of the rule to say.
    """
    axis, index = line.axes[position], operator.indices[line.axes[position].index.text]
    refusal = _Refusal(axis, index)
    if index.slot is None:
        remedy = f"write `{index.name}`, which enumerates every value up to its bound"
        if index.mode == "sequential":
            remedy = f"write `{index.name}`, or add `stored at ... of ...` to its line in `indices`"
        return refusal.of("the operator stores it at no slots", "a sequential index `stored at` a slot", remedy)
    if axis.by is not None:
        return refusal.of("a slot holds one value of it", "no tile", f"write `{index.name} packed`")
    sharing = [name for name in names_in(index.slot)
               if name in operator.indices and operator.indices[name].mode == "parallel"]  # fmt: skip
    if len(sharing) != 1:
        found = f"they are those of {listed(f'`{name}`' for name in sharing)}" if sharing else "they are its own"
        return refusal.of(found, "one parallel index in the slot", f"write `{index.name}`", index.slot.span)
    if not _counts(index.slot, index.name, operator):
        return refusal.of(
            f"its steps are not stored one after the other: `{index.slot.span.text}`",
            f"a slot that is a sum of `{index.name}` and what does not depend on it",
            f"write `{index.name}`, which enumerates every value up to its bound", index.slot.span,
        )  # fmt: skip
    before = line.axes[position - 1] if position else None
    if before is None or before.index.text != sharing[0] or before.by is not None or before.packed:
        wanted = f"{sharing[0]}, {index.name} packed"
        found = f"`{before.span.text}` stands before it" if before is not None else "it stands first"
        return refusal.of(
            f"{found}, and its slots are those of `{sharing[0]}`", f"`{wanted}`",
            f"write `{wanted}`, and `{sharing[0]}` nowhere else in the grid", index.slot.span,
        )  # fmt: skip
    return None


@frozen
class _Refusal:
    axis: n.Axis
    index: Index

    def of(self, reason: str, required: str, remedy: str, place: Span | None = None) -> Diagnostic:
        name = self.axis.index.text
        return Diagnostic(
            "E127", f"the slots of `{name}` cannot be enumerated: {reason}", self.axis.span, label="packed here",
            observed=self.axis.span.text, required=required, evidence=Evidence.PROVED,
            labels=(Label(place or self.index.span, "the operator says so"),), help=(remedy,),
        )  # fmt: skip


def _counts(expr: n.Expr, name: str, operator: Operator) -> bool:
    """Whether an expression is `name` plus something that does not depend on it, whatever its conditions are."""
    expr = strip(expr)
    if isinstance(expr, n.Name):
        return expr.text == name
    if isinstance(expr, n.Call) and expr.function.text in operator.definitions:
        definition = operator.definitions[expr.function.text]
        arguments = dict(zip(definition.parameters, expr.arguments, strict=False))
        return _counts(substitute(definition.body, arguments), name, operator)
    if isinstance(expr, n.Conditional):
        sides = (expr.then, expr.otherwise)
        return name not in names_in(expr.condition) and all(_counts(side, name, operator) for side in sides)
    if isinstance(expr, n.Binary) and expr.operator in "+-":
        left, right = (name in names_in(side) for side in (expr.left, expr.right))
        if left and not right:
            return _counts(expr.left, name, operator)
        return right and not left and expr.operator == "+" and _counts(expr.right, name, operator)
    return False
