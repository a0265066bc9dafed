"""Copies between fragments and 16-bit numbers in shared memory, which one instruction moves by tiles of 16 x 16.

`vx for residual : f32 in registers as wgmma.m64k16.C` takes a tile of shared memory apart into what the lanes of a warp
hold of an accumulator, by ldmatrix; `: in registers as wgmma.m64k16.A` leaves it in 16 bits. `o_sum for write_o : in
shared swizzle 32 over e by 16` puts a fragment of f32 there in 16 bits, by stmatrix where the target has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from attrs import frozen

from kdsl.check.model import DTYPE_BYTES
from kdsl.plan import steps as s
from kdsl.plan.cuda.fragments import TILE, on_fragments
from kdsl.plan.model import PlannedStage, Tensor

LOAD, STORE = "ldmatrix", "stmatrix"
WIDE = "wide"


def tile_name(instruction: str, dtype: str = "", stored: str = "", wide: bool = False) -> str:
    """The device function that moves one tile. `stored`: "mk", a row in memory is a row of the fragment, or "km";
    `wide`: a load into numbers of f32."""
    return "_".join(filter(None, ("kdsl", instruction, WIDE if wide else "", dtype, stored)))


@frozen
class Move:
    """A copy whose loops are rows and columns of the fragment; `shared` is the tensor in shared memory."""

    stage: PlannedStage
    shared: str
    intrinsic: str


def move_of(stage: PlannedStage, tensors: Mapping[str, Tensor], has: Collection[str]) -> Move | None:
    """The copy by an instruction of the target, or None where it goes element by element."""
    if stage.kind != "round" or stage.source.tensor not in tensors:
        return None
    source, target = tensors[stage.source.tensor], tensors[stage.tensor]
    if target.fragment is not None:
        instruction, shared, fits = LOAD, source, target.dtype in ("f32", source.dtype)
    else:
        instruction, shared, fits = STORE, target, source.dtype == "f32"
    fragment = on_fragments(stage, tensors)
    if instruction not in has or not fits or fragment is None:
        return None
    if shared.memory != "shared" or shared.scope == "passed" or DTYPE_BYTES[shared.dtype] != 2:
        return None
    columns_last = shared.indices[shared.stored[-1]] == fragment.columns
    wide = instruction == LOAD and target.dtype == "f32"
    return Move(stage, shared.name, tile_name(instruction, shared.dtype, "mk" if columns_last else "km", wide))


def move_steps(move: Move, warps: int) -> Iterator[s.Step]:
    """Tiles of 16, rows of the fragment over the warps, then the instruction."""
    name, span = move.stage.name, move.stage.span
    why = f"{move.shared} by tiles of {TILE} x {TILE}"
    rows, columns = (loop.index for loop in move.stage.loops)
    for index in (rows, columns):
        yield s.Split(name, span, why, index, (None, TILE), (f"{index}.tile", f"{index}.in"))
    yield s.Reorder(name, span, why, (f"{rows}.tile", f"{columns}.tile", f"{rows}.in", f"{columns}.in"))
    yield s.BindWarps(name, span, why, f"{rows}.tile", warps)
    yield s.Unroll(name, span, why, f"{columns}.tile")
    yield s.Tensorize(name, span, why, f"{rows}.in", move.intrinsic)
