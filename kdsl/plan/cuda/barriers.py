"""Where a step needs barriers: before a stage that meets, in shared memory, what other threads did since the last one.

A thread needs no barrier for elements that it wrote itself: two stages dealt in the same way over the same indices,
the second reading the first's tensor at those indices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen

from kdsl.check.graph import strip
from kdsl.check.model import Kernel, Read
from kdsl.plan.cuda.alone import Alone, columns_of
from kdsl.plan.cuda.deal import takes_pieces
from kdsl.plan.cuda.fragments import matrix_instruction, on_fragments
from kdsl.plan.cuda.private import in_all_warps, owners, rows_of, touches_private
from kdsl.plan.cuda.warp import warp_loop
from kdsl.plan.model import PlannedStage, Tensor
from kdsl.plan.pins import Pins
from kdsl.plan.refusal import PlanRefused
from kdsl.syntax import nodes as n


@frozen
class Access:
    """One stage's use of a shared buffer. `own`: how its elements are dealt, where they are those of the stage."""

    stage: str
    buffer: str
    writes: bool
    own: tuple | None


def barriers(
    body: Sequence[PlannedStage],
    tensors: Mapping[str, Tensor],
    kernel: Kernel,
    fetched: frozenset[str],
    alone: Alone,
    warps: int,
    pins: Pins,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the stages that a barrier has to stand before, and of those before which the lanes of their warp have
    to wait for each other. Fetched tensors are the ring's business.

    Pinned barriers stand where the pin says, and must be enough.
    """
    pinned = pins.names(kernel.name, "barriers_before")
    if pinned is not None and (unknown := set(pinned) - {stage.name for stage in body}):
        _refuse(pins, kernel, f"`{min(unknown)}` is no stage of kernel `{kernel.name}`")
    pending: list[Access] = []  # since the last barrier
    recent: list[Access] = []  # since lanes last waited for each other
    before, synced = [], []
    for stage in body:
        here = list(accesses(stage, tensors, kernel, fetched, warps))
        met = next((new.buffer for new in here for old in pending if conflict(old, new) and not meets(alone, old, new)),
                   None)  # fmt: skip
        if pinned is not None and met is not None and stage.name not in pinned:
            _refuse(
                pins,
                kernel,
                f"`{stage.name}` meets other threads' elements of `{met}` without a barrier before it",
            )
        if met is not None if pinned is None else stage.name in pinned:
            before.append(stage.name)
            pending, recent = [], []
        elif any(conflict(old, new) for new in here for old in recent):
            synced.append(stage.name)
            recent = []
        pending += here
        recent += here
    return tuple(before), tuple(synced)


def meets(alone: Alone, old: Access, new: Access) -> bool:
    """Whether the two accesses are by one warp."""
    return alone.together(old.stage, new.stage)


def settled(
    body: Sequence[PlannedStage], tensors: Mapping[str, Tensor], fences: Sequence[str], fetched: frozenset[str]
) -> bool:
    """Whether a barrier of the step stands after the last stage that reads a fetched tensor.

    Then a slot of a ring is free when the next step begins, without another barrier.
    """
    readers = [at for at, stage in enumerate(body) if any(touches(part, fetched) for part in stage.unrolled)]
    places = [at for at, stage in enumerate(body) if stage.name in fences]
    return bool(readers and places) and max(readers) < max(places)


def touches(part: PlannedStage, names: frozenset[str]) -> bool:
    return any(part.renamed.get(read.tensor, read.tensor) in names for read in reads_of(part))


def _refuse(pins: Pins, kernel: Kernel, why: str):
    raise PlanRefused("D139", why, pins.span(kernel.name, "barriers_before"),
                      help=("leave the pin out: the derivation sets the barriers that are needed",))  # fmt: skip


def conflict(old: Access, new: Access) -> bool:
    if old.buffer != new.buffer or not (old.writes or new.writes):
        return False
    return old.own is None or old.own != new.own


def accesses(
    stage: PlannedStage, tensors: Mapping[str, Tensor], kernel: Kernel, fetched: frozenset[str], warps: int
) -> Iterator[Access]:
    """Every shared buffer that the stage, or a part of it, reads or writes."""
    for part in stage.unrolled:
        dealt = dealing(part, kernel, tensors, warps)
        for read in reads_of(part):
            name = part.renamed.get(read.tensor, read.tensor)
            tensor = tensors.get(name)
            if tensor is not None and tensor.memory == "shared" and name not in fetched:
                same = dealt is not None and identity(read, part, stage.scan)
                yield Access(stage.name, tensor.held_in, False, dealt if same else None)
        tensor = tensors.get(part.tensor)
        if tensor is not None and tensor.memory == "shared" and part.tensor not in fetched:
            yield Access(stage.name, tensor.held_in, True, dealt)


def reads_of(part: PlannedStage) -> tuple[Read, ...]:
    if part.stage is not None:
        return part.stage.reads
    return (part.source,) if part.source is not None and part.kind != "tile" else ()


def dealing(part: PlannedStage, kernel: Kernel, tensors: Mapping[str, Tensor], warps: int) -> tuple | None:
    """What decides which thread has an element: the spatial loops, in order, and how they are dealt.

    None where lanes share an element, or a matrix instruction deals it.
    """
    computation = kernel.computations.get(part.name)
    if computation is not None and ("lanes" in computation.attributes or matrix_instruction(kernel, part.name)):
        return None
    if on_fragments(part, tensors) is not None:
        return None
    loops = tuple((loop.index, loop.extent) for loop in part.loops if loop.kind == "spatial")
    if touches_private(part, tensors):
        rows = rows_of(part, tensors)  # a stage without them is done by every warp, or by the first
        if rows is None:  # the lane that owns the column has all rows of it, whatever their index is called
            owned = {index for index, _ in owners(part, tensors)}
            return owners(part, tensors), tuple((index if index in owned else "", extent) for index, extent in loops)
        alone = not {rows[0], warp_loop(rows[0])} & {index for index, _ in loops}
        return owners(part, tensors), loops, in_all_warps(part, tensors) if alone else None
    return ("pieces" if takes_pieces(part, tensors, warps) else "turns"), loops, columns_of(part, tensors)


def identity(read: Read, part: PlannedStage, scan: str | None) -> bool:
    """Whether the element read is the thread's own: the same indices, but for the row of a scan."""
    names = [strip(i).text if isinstance(strip(i), n.Name) else None for i in read.indices]
    own = [loop.index for loop in part.loops if loop.kind == "spatial"]
    found = [name for name in names if name != scan]
    if scan is None:
        return found == own
    # in a scan rows differ, and the rest of the indices say whose element it is
    return [name for name in names if name in own] == own
