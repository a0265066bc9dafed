"""How each schedule step is performed on a `tvm.s_tir.Schedule`: one function a step, in a table."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field

from kdsl.lower.intrinsics.table import FRAGMENTS, register
from kdsl.lower.panels import in_panels
from kdsl.lower.tvm import Schedule
from kdsl.plan import steps as s
from kdsl.plan.cuda.warp import LANES


@define
class Nests:
    """The loops of every sblock by name, as the plan names them."""

    schedule: Schedule
    names: dict[str, tuple[str, ...]]  # sblock -> its loops from the outside in, before any step
    loops: dict[str, dict[str, object]] = field(factory=dict)
    made: dict[str, object] = field(factory=dict)  # blocks that steps made, by the plan's names

    def block(self, name: str):
        return self.made[name] if name in self.made else self.schedule.get_sblock(name)

    def loop(self, sblock: str, name: str):
        return self.of(sblock)[name]

    def of(self, sblock: str) -> dict[str, object]:
        if sblock not in self.loops:
            names = self.names[sblock]
            found = list(self.schedule.get_loops(self.block(sblock)))
            self.loops[sblock] = dict(zip(names, found[len(found) - len(names) :]))
        return self.loops[sblock]


def fuse(nests: Nests, step: s.Fuse) -> None:
    loops = nests.of(step.sblock)
    loops[step.name] = nests.schedule.fuse(*[loops.pop(name) for name in step.loops])


def split(nests: Nests, step: s.Split) -> None:
    loops = nests.of(step.sblock)
    made = nests.schedule.split(loops.pop(step.loop), list(step.factors))
    loops.update(zip(step.names, made))


def reorder(nests: Nests, step: s.Reorder) -> None:
    nests.schedule.reorder(*[nests.loop(step.sblock, name) for name in step.loops])


def parallel(nests: Nests, step: s.Parallel) -> None:
    nests.schedule.parallel(nests.loop(step.sblock, step.loop))


def vectorize(nests: Nests, step: s.Vectorize) -> None:
    nests.schedule.vectorize(nests.loop(step.sblock, step.loop))


def unroll(nests: Nests, step: s.Unroll) -> None:
    loop = nests.loop(step.sblock, step.loop)
    nests.schedule.unroll(loop)
    if step.written_out:
        nests.schedule.annotate(loop, "pragma_unroll_explicit", True)


def bind(nests: Nests, step: s.Bind) -> None:
    nests.schedule.bind(nests.loop(step.sblock, step.loop), step.thread)


def bind_warps(nests: Nests, step: s.BindWarps) -> None:
    first_warps(nests.schedule, nests.loop(step.sblock, step.loop), step.warps)


def first_warps(schedule: Schedule, loop, warps: int) -> None:
    """The loop on the first of a block's warps: a predicate keeps the others out."""
    if int(schedule.get(loop).extent) < warps:
        _, loop = schedule.split(loop, [None, warps])
    schedule.bind(loop, "threadIdx.y")


def decompose(nests: Nests, step: s.Decompose) -> None:
    block = nests.schedule.get_sblock(step.sblock)
    nests.schedule.decompose_reduction(block, nests.loop(step.sblock, step.loop))


def set_scope(nests: Nests, step: s.SetScope) -> None:
    nests.schedule.set_scope(nests.schedule.get_sblock(step.sblock), 0, step.scope)


def add_unit_loop(nests: Nests, step: s.AddUnitLoop) -> None:
    loops = nests.of(step.sblock)
    inside = next(iter(loops.values())) if loops else nests.block(step.sblock)
    loops[step.name] = nests.schedule.add_unit_loop(inside)


def storage_align(nests: Nests, step: s.StorageAlign) -> None:
    nests.schedule.storage_align(nests.block(step.sblock), 0, axis=-2, factor=step.columns, offset=step.pad)


def fragment_map(instruction: str):
    """Element (row, column) to (row tile, column tile, lane, slot), for tensors with any leading axes."""
    place = FRAGMENTS[instruction]

    def two(i, j):
        return (i // 16, j // 16, *place(i % 16, j % 16))

    return two


def transform_layout(nests: Nests, step: s.TransformLayout) -> None:
    nests.schedule.transform_layout(
        nests.block(step.sblock), ("write", 0), fragment_map(step.instruction), assume_injective_transform=True
    )


def panels(nests: Nests, step: s.Panels) -> None:
    """Columns in panels, one behind the other: [..., panel, row, column of the panel]."""
    nests.schedule.transform_layout(
        nests.block(step.sblock), ("write", 0), lambda *at: in_panels(at, step.columns), assume_injective_transform=True
    )


def fragment_loops(nests: Nests, step: s.FragmentLoops) -> None:
    schedule, block = nests.schedule, nests.block(step.sblock)
    schedule.transform_block_layout(block, fragment_map(step.instruction))
    warp, tile, lane, slot = schedule.get_loops(block)[-4:]
    first_warps(schedule, warp, step.warps)
    schedule.bind(lane, "threadIdx.x")
    schedule.unroll(tile)  # registers have no addresses: every element of a fragment is named
    schedule.unroll(slot)


def blockize(nests: Nests, step: s.Blockize) -> None:
    nests.made[step.name] = nests.schedule.blockize(nests.loop(step.sblock, step.loop))


def decompose_block(nests: Nests, step: s.DecomposeBlock) -> None:
    schedule = nests.schedule
    initial = schedule.decompose_reduction(nests.made[step.block], nests.loop(step.sblock, step.loop))
    loops = schedule.get_loops(initial)
    for loop in loops[len(loops) - step.initial_loops :]:
        schedule.unroll(loop)
    nests.made[step.initial] = schedule.get_child_blocks(initial)[0]


def hide_reads(nests: Nests, step: s.HideReads) -> None:
    for name in step.blocks:
        block = nests.block(name)
        reads = [region.source.name for region in nests.schedule.get(block).reads]
        positions = [at for at, read in enumerate(reads) if base_name(read) not in step.kept]
        if positions:
            nests.schedule.unsafe_hide_buffer_access(block, "read", positions)


def base_name(buffer: str) -> str:
    """A buffer's name without the scope that TVM appends."""
    for scope in ("_warp", "_shared.dyn", "_local"):
        buffer = buffer.removesuffix(scope)
    return buffer


def tensorize(nests: Nests, step: s.Tensorize) -> None:
    register(step.intrinsic)
    nests.schedule.tensorize(nests.loop(step.sblock, step.loop), step.intrinsic)


def initial_lanes(nests: Nests, step: s.InitialLanes) -> None:
    schedule, block = nests.schedule, nests.made[step.initial]
    place = FRAGMENTS[step.instruction]
    schedule.transform_block_layout(block, lambda i, j: (j // 16, *place(i, j % 16)))
    tile, lane, slot = schedule.get_loops(block)[-3:]
    schedule.unroll(tile)
    schedule.bind(lane, "threadIdx.x")
    schedule.unroll(slot)


def initial_rows(nests: Nests, step: s.InitialRows) -> None:
    (*_, row) = nests.schedule.get_loops(nests.made[step.initial])
    _, lane = nests.schedule.split(row, [None, LANES])
    nests.schedule.bind(lane, "threadIdx.x")


PRIMITIVES: dict[type, Callable] = {
    s.Fuse: fuse,
    s.Split: split,
    s.Reorder: reorder,
    s.Parallel: parallel,
    s.Vectorize: vectorize,
    s.Unroll: unroll,
    s.Bind: bind,
    s.BindWarps: bind_warps,
    s.Decompose: decompose,
    s.SetScope: set_scope,
    s.AddUnitLoop: add_unit_loop,
    s.StorageAlign: storage_align,
    s.TransformLayout: transform_layout,
    s.Panels: panels,
    s.FragmentLoops: fragment_loops,
    s.Blockize: blockize,
    s.DecomposeBlock: decompose_block,
    s.HideReads: hide_reads,
    s.Tensorize: tensorize,
    s.InitialLanes: initial_lanes,
    s.InitialRows: initial_rows,
}
