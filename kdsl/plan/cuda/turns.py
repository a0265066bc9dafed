"""Stages too small for all warps of a block, each on warps of its own.

A product of one tile of rows is a warp's. Two of them in a block of two warps are done at the same time if the second
one is turned: its warp is the second. What works on the fragments that a product leaves goes along with it, and a
stage of few elements goes where what it reads was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from kdsl.check.model import Kernel
from kdsl.plan.cuda.fragments import on_fragments
from kdsl.plan.cuda.private import owners, rows_of
from kdsl.plan.cuda.products import Product
from kdsl.plan.cuda.squares import TILE, Squares
from kdsl.plan.cuda.warp import LANES
from kdsl.plan.model import PlannedStage, Tensor


def first_warps(
    body: Sequence[PlannedStage], products: Mapping[str, Product], squares: Mapping[str, Squares],
    tensors: Mapping[str, Tensor], kernel: Kernel, warps: int,
) -> tuple[dict[str, int], dict[str, int]]:  # fmt: skip
    """The first warp of every stage that does not need them all, and of those that one warp does that warp."""
    found: dict[str, int] = {}
    single: dict[str, int] = {}
    next_warp = 0
    for stage in body:
        if stage.name in found or not (stage.name in products or stage.name in squares):
            continue
        along = together(stage, body, tensors)
        tiles = {tiles_of(other) for other in body if other.name in along}
        carried = any(tensors[name].scope == "carried" for name in fragments(along, body, tensors))
        if len(tiles) != 1 or carried or (count := tiles.pop()) >= warps:
            continue
        found.update(dict.fromkeys(along, next_warp % warps))
        single.update(dict.fromkeys(along if count == 1 else (), next_warp % warps))
        next_warp += count
    makers = {stage.tensor: stage.name for stage in body}
    for stage in body:
        if stage.name not in found and warps > 1 and is_small(stage, tensors, kernel):
            near = [single[makers[name]] for name in stage.touched[1:] if makers.get(name) in single]
            found[stage.name] = single[stage.name] = near[0] if near else warps - 1
    parts = {part.name: found[stage.name] for stage in body if stage.name in found for part in stage.inner}
    return {**found, **parts}, single


def is_small(stage: PlannedStage, tensors: Mapping[str, Tensor], kernel: Kernel) -> bool:
    """Whether a warp's lanes have an element each, or none: of those a thread computes one after the other."""
    computation = kernel.computations.get(stage.name)
    if on_fragments(stage, tensors) is not None or (computation is not None and "lanes" in computation.attributes):
        return False
    extents = {loop.index: loop.extent for loop in stage.loops if loop.kind == "spatial"}
    owned = owners(stage, tensors)
    if owned:
        index, by = owned[0]
        return rows_of(stage, tensors) is None and extents.get(index, LANES * by + 1) <= LANES * by
    return bool(extents) and prod(extents.values()) <= LANES


def together(stage: PlannedStage, body: Sequence[PlannedStage], tensors: Mapping[str, Tensor]) -> set[str]:
    """The stages that fragments connect with this one."""
    found, size = {stage.name}, 0
    while size != len(found):
        size = len(found)
        held = fragments(found, body, tensors)
        found |= {other.name for other in body if held & set(other.touched)}
    return found


def fragments(stages: Iterable[str], body: Sequence[PlannedStage], tensors: Mapping[str, Tensor]) -> set[str]:
    """The tensors in registers of a warp that the stages read or write."""
    names = {name for stage in body if stage.name in set(stages) for name in stage.touched}
    return {name for name in names if name in tensors and tensors[name].fragment is not None}


def tiles_of(stage: PlannedStage) -> int:
    """How many tiles of rows a stage on fragments has: its first loop runs over the rows."""
    return -(-stage.loops[0].extent // TILE)
