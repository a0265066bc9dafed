"""Tiles, widths and counts: what may be dealt, and the findings about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kdsl.check.findings import a, listed
from kdsl.check.model import Stage, walk
from kdsl.check.points import Point
from kdsl.source.diagnostic import Diagnostic, Evidence, Label
from kdsl.source.span import Span
from kdsl.syntax import nodes as n

# Of every index: the extents still to be dealt, and the line that cut it.
Left = dict[str, tuple[tuple[int, ...] | None, Span | None]]


def dealt_twice(point: Point, index: str, again: Span, first: Span) -> None:
    point.report(Diagnostic("E122", f"index `{index}` is dealt out twice", again, label="again here",
                            labels=(Label(first, "first here"),), observed="2 times", required="once",
                evidence=Evidence.PROVED, help=("keep one of the two, with the tile you want",)))  # fmt: skip


def positive(point: Point, expr: n.Expr | None, what: str, span: Span, least: int = 1) -> int | None:
    """The value of a tile, width, count or depth; a finding and None below `least`. Nothing said: 1."""
    if expr is None:
        return 1
    value = point.value(expr)
    if not isinstance(value, int):
        return None
    if value < least:
        point.report(Diagnostic("E123", f"{what} is {value}", span, observed=str(value),
                                required=f"at least {least}",
                                evidence=Evidence.PROVED))  # fmt: skip
        return None
    return value


def divides(point: Point, axis: n.Axis, extents: tuple[int, ...] | None, by: int) -> bool:
    """Whether the tile can be used: it divides some extent that the rule takes (others are refused by
    `select`).
    """
    if not extents or any(extent % by == 0 for extent in extents):
        return True
    point.report(tile_finding(point, axis, extents, by))
    return False


def tile_finding(point: Point, axis: n.Axis, extents: tuple[int, ...], by: int) -> Diagnostic:
    name = axis.index.text
    extent = extents[-1]
    text = point.rule.operator.indices[name].extent.span.text
    subject = f"{text} = {extent}" if text != str(extent) else str(extent)
    if len(extents) > 1:
        subject = f"no extent of `{name}` ({extents[0]} to {extent})"
    message = f"`{axis.span.text}`: {subject} is {'' if len(extents) > 1 else 'not '}a multiple of {by}"
    labels, help_ = [], []
    if axis.by is not None:
        used = [x.text for x in walk(axis.by) if isinstance(x, n.Name) and x.text in point.rule.choices]
        for choice in used:
            labels.append(Label(point.rule.choice_spans[choice], f"`{choice}` is chosen here"))
        if len(used) == 1 and isinstance(axis.by, n.Name):
            values = ", ".join(str(v) for v in point.rule.choices[used[0]])
            help_.append(f"{used[0]} in [{values}]: {by} can never be used; remove it")
    if len(extents) == 1:
        near = nearest_divisors(extent, by)
        help_.append(f"nearest that divide {extent}: {listed(near)}")
    return Diagnostic("E120", message, axis.span, observed=str(by), required=f"a divisor of {extent}",
                      labels=tuple(labels), evidence=Evidence.PROVED, help=tuple(help_))  # fmt: skip


def nearest_divisors(extent: int, by: int) -> list[int]:
    """The divisors next to `by` on either side."""
    divisors = [d for d in range(1, extent + 1) if extent % d == 0]
    return [d for d in ([d for d in divisors if d < by][-1:] + [d for d in divisors if d > by][:1])]


def missing_feature(
    point: Point, feature: str, span: Span, reason: str = "", stages: Sequence[Stage] = ()
) -> Diagnostic:
    """E210: what the target has instead; of instructions, those that all of `stages` can be computed with."""
    declaration = point.target.declaration
    known = point.rule.declarations.instructions
    others = sorted(set(point.target.has) - set(known))
    instructions = sorted(f for f in point.target.has if f in known and _takes(point, f, stages))
    notes = (f"it has the instructions {listed(instructions)}",)
    if feature not in known:
        notes = (f"it has {listed(others) or 'no such engines'}",)
    unfit = next((s for s in stages if not _takes(point, feature, [s])), None)
    fitting = [name for name, t in point.rule.declarations.right_targets.items() if feature in t.has]
    help_ = (f"{feature} is there on {listed(fitting)}",) if fitting else ()
    if unfit is not None:
        notes = ()
        write = f"write {' or '.join(instructions)}, or " if instructions else ""
        help_ = (f"`{unfit.name}` is {a(unfit.kind)}, which no matrix instruction computes: {write}drop the line",)
    return Diagnostic("E210", f"{point.target.name} has no `{feature}`" + (f": {reason}" if reason else ""),
                      span,
                      label=f"not on {point.target.name}", observed=feature,
                      required="an instruction of the target" if instructions else None,
                      labels=(Label(declaration.name.span, "the target"),), notes=notes, help=help_,
                      evidence=Evidence.PROVED)  # fmt: skip


def _takes(point: Point, instruction: str, stages: Iterable[Stage]) -> bool:
    """Whether every stage can be computed with the instruction: one for matrices takes products alone."""
    resolved = point.rule.declarations.right_instructions.get(instruction)
    if resolved is None or "A" not in resolved.operands:
        return True
    return all(stage.kind == "contract" for stage in stages)
