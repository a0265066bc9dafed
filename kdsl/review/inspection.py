"""The report of `kdsl inspect`: kernels, their costly instructions with lines, and edits that were verified."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from kdsl.inspect.stages import StagedCode
from kdsl.lower.lowering import Lowering
from kdsl.review.costs import Cost
from kdsl.review.remedy import NoRemedy, Remedy
from kdsl.source.span import Span


@frozen
class Inspection:
    """`remedies` is empty where none were asked for."""

    lowering: Lowering
    kernels: tuple[StagedCode, ...]
    costs: tuple[Cost, ...]
    remedies: tuple[Remedy | NoRemedy, ...] = ()


def report(found: Inspection) -> str:
    plan = found.lowering.plan
    lines = [f"{plan.rule.name} on {plan.target.name}"]
    for one in found.kernels:
        lines += ["", kernel_line(one)]
        mine = [cost for cost in found.costs if cost.kernel == one.plan.name]
        lines += [line for cost in mine for line in cost_lines(cost)] or ["  nothing costly"]
    if found.remedies:
        lines += ["", "edits"]
        lines += [line for remedy in found.remedies for line in remedy_lines(remedy)]
    return "\n".join(lines) + "\n"


def kernel_line(one: StagedCode) -> str:
    use = one.code.use
    return (
        f"kernel {one.plan.name}: {use.threads} threads, {use.registers} registers, {use.spills} bytes spilled, "
        f"{use.shared} bytes shared, {use.occupancy.blocks} blocks per SM"
    )


def cost_lines(cost: Cost) -> Iterator[str]:
    names = ", ".join(f"{number} {name}" for name, number in cost.instructions[:3])
    if len(cost.instructions) > 3:
        names += ", ..."
    yield f"  {cost.kind}: {cost.stage or 'outside of stages'} {cost.note}"
    yield f"      {names or 'no instruction of its own'}{cuda_lines(cost.lines)}"
    for what, span in cost.spans:
        yield f"      {what:9} {place(span)}: {line_text(span)}"


def cuda_lines(lines: tuple[int, ...]) -> str:
    if not lines:
        return ""
    shown = ", ".join(map(str, lines[:4])) + (", ..." if len(lines) > 4 else "")
    return f" (CUDA line{'s' * (len(lines) > 1)} {shown})"


def place(span: Span) -> str:
    """`mma.kds:27`, with the folder that says whose file it is."""
    path = Path(span.path)
    return f"{'/'.join(path.parts[-2:])}:{span.line}"


def line_text(span: Span) -> str:
    return " ".join(span.source.line(span.line).split())


def remedy_lines(remedy: Remedy | NoRemedy) -> Iterator[str]:
    tensors = ", ".join(remedy.tensors)
    if isinstance(remedy, NoRemedy):
        yield f"  kernel {remedy.kernel}, {tensors}: {remedy}"
        return
    yield f"  kernel {remedy.kernel}, {tensors}: {remedy.edit.title}, at {place(remedy.edit.span)}"
    yield f"    - {' '.join(remedy.edit.span.text.split())}"
    yield f"    + {' '.join(remedy.edit.replacement.split())}"
    yield f"    {remedy}"


# ---- data


def document(found: Inspection) -> dict:
    """The same as plain data."""
    plan = found.lowering.plan
    return {
        "rule": plan.rule.name,
        "target": plan.target.name,
        "kernels": [kernel_document(one) for one in found.kernels],
        "costs": [cost_document(cost) for cost in found.costs],
        "remedies": [remedy_document(remedy) for remedy in found.remedies],
    }


def kernel_document(one: StagedCode) -> dict:
    use = one.code.use
    return {
        "name": one.plan.name, "threads": use.threads, "registers": use.registers, "spills": use.spills,
        "shared_bytes": use.shared, "blocks_per_sm": use.occupancy.blocks, "tools": [one.code.sass.tool],
    }  # fmt: skip


def cost_document(cost: Cost) -> dict:
    return {
        "kind": cost.kind, "kernel": cost.kernel, "stage": cost.stage, "tensor": cost.tensor, "note": cost.note,
        "instructions": dict(cost.instructions), "cuda_lines": list(cost.lines),
        "places": [{"what": what, "path": span.path, "line": span.line} for what, span in cost.spans],
    }  # fmt: skip


def remedy_document(remedy: Remedy | NoRemedy) -> dict:
    found = {"kernel": remedy.kernel, "tensors": list(remedy.tensors), "verified": isinstance(remedy, Remedy)}
    if isinstance(remedy, NoRemedy):
        return {**found, "tried": remedy.tried, "reason": remedy.reason}
    span = remedy.edit.span
    edit = {"path": span.path, "line": span.line, "old": span.text, "new": remedy.edit.replacement}
    return {**found, "title": remedy.edit.title, "edit": edit, "degree": [remedy.before.worst, remedy.after.worst]}
