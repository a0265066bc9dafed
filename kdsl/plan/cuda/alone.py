"""What a warp does alone in shared memory, so that the block need not wait for it.

`o_sum for write_o : f32 in shared pad 4 over e by 16` says that of every row a warp has 16 columns, which it alone
writes and reads. And a stage of a few elements runs on one warp: where what it reads comes from that warp, it stays
there. Then the lanes of the warp wait for each other (`__syncwarp`), and no other warp does.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

from attrs import evolve, frozen

from kdsl.check.graph import strip
from kdsl.check.model import Role
from kdsl.plan import steps as s
from kdsl.plan.cuda.fragments import TILE, on_fragments
from kdsl.plan.cuda.warp import LANES
from kdsl.plan.model import PlannedStage, Tensor
from kdsl.plan.refusal import PlanRefused
from kdsl.syntax import nodes as n


@frozen
class Alone:
    """Which stages warps do alone: by name the warp of those that one does, and all that run on columns of a warp."""

    warp: Mapping[str, int]
    columns: frozenset[str]

    def together(self, one: str, other: str) -> bool:
        """Whether what the two stages share stays within a warp."""
        if one in self.columns or other in self.columns:
            return one in self.columns and other in self.columns
        return one in self.warp and self.warp[one] == self.warp.get(other)


def columns_of(stage: PlannedStage, tensors: Mapping[str, Tensor]) -> tuple[str, int] | None:
    """The index whose values lie over warps in shared memory that a stage touches, and how many a warp has."""
    found = (tensors[name].over for name in stage.touched if name in tensors)
    return next((over for over in found if over is not None), None)


def deal_columns(stage: PlannedStage, over: tuple[str, int], warps: int, piece: int) -> Iterator[s.Step]:
    """Every warp does its own columns, its lanes `piece` neighbours at a time."""
    index, tile = over
    why = f"{index} over {warps} warps, {piece} neighbours to a lane"
    name, span = stage.name, stage.span
    outer, inner = f"{index}.warp", f"{index}.column"
    others = tuple(loop.index for loop in stage.loops if loop.index != index)
    yield s.Split(name, span, why, index, (warps, tile), (outer, inner))
    yield s.Reorder(name, span, why, (outer, *others, inner))
    element = inner
    if others:
        element = "element"
        yield s.Fuse(name, span, why, (*others, inner), element)
    names = (f"{element}.turn", f"{element}.lane", f"{element}.piece")
    yield s.Split(name, span, why, element, (None, LANES, piece), names)
    yield s.Bind(name, span, why, outer, "threadIdx.y")
    yield s.Bind(name, span, why, names[1], "threadIdx.x")
    if stage.kind in ("tile", "round"):
        yield s.Unroll(name, span, "many loads in flight", names[0])
    if piece > 1:
        yield s.Vectorize(name, span, "neighbours in one access", names[2])


def with_warps_panels(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Of swizzled tensors whose columns lie over warps, what a warp has lies together: its pieces change places."""
    found = dict(tensors)
    for name, tensor in tensors.items():
        if tensor.swizzle and tensor.over is not None and tensor.indices[tensor.stored[-1]] == tensor.over[0]:
            found[name] = evolve(tensor, panel=tensor.over[1])
    return found


def refuse_other_warps(
    stages: Iterable[PlannedStage], tensors: Mapping[str, Tensor], products: Container[str], role: Role
) -> None:
    """Columns in shared memory that lie over warps are met by stages on the same columns, and by no product."""
    for stage in (part for outer in stages for part in outer.unrolled):
        for name in stage.touched:
            tensor = tensors.get(name)
            if tensor is None or tensor.over is None:
                continue
            index, tile = tensor.over
            extent = dict(zip(tensor.indices, tensor.shape)).get(index)
            fragment = on_fragments(stage, tensors)
            if extent != role.warps * tile:
                found, needed = f"{extent} values of `{index}`", f"{role.warps} warps of {tile}"
            elif stage.name in products:
                found, needed = f"the product `{stage.name}`, whose warps read all of it", "a stage on elements"
            elif fragment is not None and (fragment.rows, TILE) != (index, tile):
                found = f"stage `{stage.name}` on fragments of rows `{fragment.rows}` by {TILE}"
                needed = f"rows `{index}` by {tile}"
            elif others_columns(stage, name, index):
                found, needed = f"stage `{stage.name}` reads other columns", f"`{index}` as it is"
            else:
                continue
            raise PlanRefused(
                "D364", f"`{name}` does not lie over warps by `{index}`", tensor.span, observed=found, required=needed,
                help=(f"leave out `over {index} by {tile}`: then all warps of the block wait for each other",),
            )  # fmt: skip


def warps_apart(tensors: Mapping[str, Tensor], passed: Container[str]) -> bool:
    """Whether all that the kernel's stages and copies put into shared memory lies over warps."""
    shared = [t for t in tensors.values() if t.memory == "shared" and t.name not in passed]
    return bool(shared) and all(t.over is not None for t in shared)


def others_columns(stage: PlannedStage, tensor: str, index: str) -> bool:
    """Whether the stage reads the tensor at another value of the index than its own."""
    own = {loop.index for loop in stage.loops if loop.kind == "spatial"}
    for read in stage.stage.reads if stage.stage is not None else ():
        if stage.renamed.get(read.tensor, read.tensor) == tensor:
            names = [strip(i).text for i in read.indices if isinstance(strip(i), n.Name)]
            if index not in names or index not in own:
                return True
    return False
