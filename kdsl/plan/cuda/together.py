"""Stages on the columns that lanes own, row by row: all of them for one row, then for the next.

Stage by stage, everything that a lane has of one stage would wait in registers for the next stage: 16 numbers of each
column, where one is enough. Stages that stand one behind the other go together if whatever one makes is read by the
others in the same row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kdsl.check.graph import strip
from kdsl.plan.cuda.barriers import reads_of
from kdsl.plan.cuda.private import owners
from kdsl.plan.model import Loop, PlannedStage, Tensor
from kdsl.plan.pins import Pins
from kdsl.plan.refusal import PlanRefused
from kdsl.syntax import nodes as n


def together(
    body: Sequence[PlannedStage], tensors: Mapping[str, Tensor], breaks: Collection[str], slots: Collection[str]
) -> tuple[tuple[str, ...], ...]:
    """Groups of stages, each of two or more. `breaks` are stages that something stands before; `slots` are tensors
    whose first stage waits."""
    groups: list[list[PlannedStage]] = []
    waited = False
    for stage in body:
        waits = not waited and stage.tensor in slots
        waited |= waits
        fits = bool(groups) and bool(groups[-1]) and stage.name not in breaks and not waits
        if row_of(stage, tensors) is None:
            groups.append([])
        elif fits and all(may_join(stage, other, tensors) for other in groups[-1]):
            groups[-1].append(stage)
        else:
            groups.append([stage])
    return tuple(tuple(stage.name for stage in group) for group in groups if len(group) > 1)


def rows_at_once(
    pins: Pins, kernel: str, groups: Sequence[Sequence[str]],
    body: Sequence[PlannedStage], tensors: Mapping[str, Tensor],
) -> int:  # fmt: skip
    """Rows of a group of stages whose reads of shared memory come before the first one's writes: as pinned, or 1.

    Raises PlanRefused where that is no number of rows to go together.
    """
    if not groups:
        return 1  # the pin stays unread, and is refused as naming nothing
    pinned = pins.number(kernel, "rows_at_once") or 1
    grouped = {name for group in groups for name in group}
    extents = {row_of(stage, tensors).extent for stage in body if stage.name in grouped}
    wrong = next((extent for extent in sorted(extents) if pinned >= extent > 1 or extent % pinned), None)
    if wrong is not None:
        raise PlanRefused(
            "D131", f"`{kernel}.rows_at_once` parts the {wrong} rows of a tile", pins.span(kernel, "rows_at_once"),
            observed=str(pinned), required=f"a divisor of {wrong} below it",
            help=(f"write `{kernel}.rows_at_once = 4`",),
        )  # fmt: skip
    return pinned


def row_of(stage: PlannedStage, tensors: Mapping[str, Tensor]) -> Loop | None:
    """The one loop that a lane runs for each column it owns, if all that the stage does is in it."""
    owned = owners(stage, tensors)
    if len(owned) != 1 or stage.inner or (stage.stage is not None and stage.stage.reduction is not None):
        return None
    rows = [loop for loop in stage.loops if loop.index != owned[0][0]]
    return rows[0] if len(rows) == 1 and rows[0].kind in ("spatial", "scan") else None


def may_join(stage: PlannedStage, other: PlannedStage, tensors: Mapping[str, Tensor]) -> bool:
    """Whether the two own the same columns, have as many rows, and meet in memory only in the same row."""
    here, there = row_of(stage, tensors), row_of(other, tensors)
    if owners(stage, tensors) != owners(other, tensors) or here.extent != there.extent:
        return False
    written = {held(name, tensors) for name in (stage.tensor, other.tensor)}
    common = {held(name, tensors) for name in stage.touched} & {held(name, tensors) for name in other.touched} & written
    return all(in_row(part, common, tensors) for part in (stage, other))


def held(name: str, tensors: Mapping[str, Tensor]) -> str:
    return tensors[name].held_in if name in tensors else name


def in_row(stage: PlannedStage, buffers: Collection[str], tensors: Mapping[str, Tensor]) -> bool:
    """Whether the stage meets these buffers in its own row alone; a scan also reads rows of its own before it."""
    row = row_of(stage, tensors).index
    if held(stage.tensor, tensors) in buffers and row not in stage.indices:
        return False
    for read in reads_of(stage):
        name = stage.renamed.get(read.tensor, read.tensor)
        if held(name, tensors) not in buffers or name == stage.tensor:
            continue
        if not any(isinstance(strip(i), n.Name) and strip(i).text == row for i in read.indices):
            return False
    return True
