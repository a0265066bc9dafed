"""Products too small for all warps of a block, each on warps of its own.

A product of one tile of rows is a warp's. Two of them in a block of two warps are done at the same time if the second
one is turned: its warp is the second. What works on the fragments that a product leaves goes along with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kdsl.plan.cuda.products import Product
from kdsl.plan.cuda.squares import TILE, Squares
from kdsl.plan.model import PlannedStage, Tensor


def turns(
    body: Sequence[PlannedStage], products: Mapping[str, Product], squares: Mapping[str, Squares],
    tensors: Mapping[str, Tensor], warps: int,
) -> dict[str, int]:  # fmt: skip
    """By how many warps a stage's are turned; stages on the first warps are left out."""
    found, next_warp = {}, 0
    done: set[str] = set()
    for stage in body:
        if stage.name in done or not (stage.name in products or stage.name in squares):
            continue
        along = together(stage, body, tensors)
        done |= along
        tiles = {tiles_of(other) for other in body if other.name in along}
        carried = any(tensors[name].scope == "carried" for name in fragments(along, body, tensors))
        if len(tiles) != 1 or carried or (count := tiles.pop()) >= warps:
            continue
        found.update(dict.fromkeys(along, next_warp % warps))
        next_warp += count
    return {name: turn for name, turn in found.items() if turn}


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
