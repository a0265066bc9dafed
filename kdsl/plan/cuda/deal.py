"""Stages whose elements the threads of a block share out: each thread computes some, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from kdsl.check.model import DTYPE_BYTES, Home, Kernel
from kdsl.plan import steps as s
from kdsl.plan.cuda.alone import columns_of
from kdsl.plan.cuda.private import touches_private
from kdsl.plan.cuda.warp import LANES, MOVED_PIECE, PIECE, ROW_BYTES
from kdsl.plan.model import PlannedStage, Tensor
from kdsl.plan.refusal import PlanRefused
from kdsl.plan.stages import stored_as_it_is


def takes_pieces(stage: PlannedStage, tensors: Mapping[str, Tensor], warps: int) -> int:
    """How many neighbours lanes take: elements without sums, in rows of whole pieces that fill the warps; else 0.

    A piece is 16 bytes of f32, which is what most stages compute in, or of what is only moved.
    """
    if stage.scan is not None or stage.inner or touches_private(stage, tensors):
        return 0
    if len(stage.loops) < 2 or any(loop.kind != "spatial" for loop in stage.loops):
        return 0
    touched = [tensors[name] for name in stage.touched if name in tensors]
    elements = prod(loop.extent for loop in stage.loops)
    row, columns = stage.loops[-1].extent, columns_of(stage, tensors)
    if columns is not None:
        row = columns[1] if columns[0] == stage.loops[-1].index else 1
    for piece in (MOVED_PIECE, PIECE) if only_moves(stage, tensors) else (PIECE,):
        fits = row % piece == 0 and elements % (warps * LANES * piece) == 0
        if fits and all(whole_pieces(tensor, piece) for tensor in touched):
            return piece
    return 0


def only_moves(stage: PlannedStage, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a stage copies a tensor of 16-bit numbers as it is: into another one, or into a port that has its dtype,
    as copies for such a stage do."""
    if stage.kind == "compute" and stage.tensor not in tensors:
        copy = copy_for_port(stage, tensors)
        return copy is not None and DTYPE_BYTES[copy.dtype] == 2
    if stage.kind != "round" or stage.source.tensor not in tensors:
        return False
    source, target = tensors[stage.source.tensor], tensors[stage.tensor]
    return source.dtype == target.dtype and DTYPE_BYTES[source.dtype] == 2


def copy_for_port(stage: PlannedStage, tensors: Mapping[str, Tensor]) -> Tensor | None:
    """The copy that a stage stores in a port as it is."""
    return tensors.get(stage.renamed.get(stored_as_it_is(stage.stage), ""))


def moves_pieces(stage: PlannedStage, tensors: Mapping[str, Tensor], warps: int) -> bool:
    """Whether lanes copy a tensor, or store one in a port, by pieces of 16 bytes."""
    source = tensors.get(stage.source.tensor) if stage.kind == "round" else None
    if stage.kind == "compute":
        source = copy_for_port(stage, tensors)
    return source is not None and takes_pieces(stage, tensors, warps) * DTYPE_BYTES[source.dtype] == ROW_BYTES


def whole_pieces(tensor: Tensor, piece: int) -> bool:
    """Whether rows in shared memory start at multiples of a piece."""
    return tensor.memory != "shared" or len(tensor.shape) < 2 or (tensor.shape[-1] + tensor.pad) % piece == 0


def deal_pieces(stage: PlannedStage, warps: int, piece: int) -> Iterator[s.Step]:
    """Neighbouring elements to a lane, rows over warps; a piece is one access of memory."""
    why = f"elements over {warps} warps of {LANES} lanes, {piece} neighbours each"
    yield s.Fuse(stage.name, stage.span, why, tuple(loop.index for loop in stage.loops), "element")
    names = ("element.turn", "element.warp", "element.lane", "element.piece")
    yield s.Split(stage.name, stage.span, why, "element", (None, warps, LANES, piece), names)
    yield s.Bind(stage.name, stage.span, why, names[1], "threadIdx.y")
    yield s.Bind(stage.name, stage.span, why, names[2], "threadIdx.x")
    if stage.kind in ("tile", "round"):
        yield s.Unroll(stage.name, stage.span, "many loads in flight", names[0])
    yield s.Vectorize(stage.name, stage.span, "neighbours in one access", names[3])


def deal(stage: PlannedStage, kernel: Kernel, warps: int, memory: str) -> Iterator[s.Step]:
    """Elements over warps and lanes in the order they are stored; sums stay in a thread unless `lanes` deals them."""
    computation = kernel.computations.get(stage.name)
    span = computation.span if computation is not None else stage.span
    lanes = computation.attributes.get("lanes", ()) if computation is not None else ()
    spatial = [loop for loop in stage.loops if loop.kind == "spatial"]
    reduced = [loop for loop in stage.loops if loop.kind == "reduce"]
    if lanes:
        yield from _reduce_over_lanes(stage, lanes[0][0], spatial, reduced, warps, span, memory == "thread")
        return
    why = f"elements over {warps} warps of {LANES} lanes"
    name = "element"
    if not spatial and memory == "thread" and not reduced:
        return  # every lane computes the number for itself
    if not spatial:
        yield s.AddUnitLoop(stage.name, span, why, name)
        if reduced:
            raise PlanRefused(
                "D340", f"stage `{stage.name}` sums to one number, and nothing says which lanes share the sum", span,
                help=(f"add `{stage.name} : fma.f32 lanes {reduced[0].index} by 4 via shuffle`",),
            )  # fmt: skip
    elif len(spatial) == 1:
        name = spatial[0].index
    else:
        yield s.Fuse(stage.name, span, why, tuple(loop.index for loop in spatial), name)
    names = (f"{name}.turn", f"{name}.warp", f"{name}.lane")
    yield s.Split(stage.name, span, why, name, (None, warps, LANES), names)
    yield s.Bind(stage.name, span, why, names[1], "threadIdx.y")
    yield s.Bind(stage.name, span, why, names[2], "threadIdx.x")
    if stage.kind == "tile":
        yield s.Unroll(stage.name, span, "many loads in flight", names[0])
    if reduced:
        yield s.Decompose(stage.name, span, "initial value before the sum", reduced[0].index)
        if reduced[-1].extent <= LANES:
            yield s.Unroll(stage.name, span, "loads independent of each other", reduced[-1].index)


def _reduce_over_lanes(stage, index, spatial, reduced, warps, span, private: bool) -> Iterator[s.Step]:
    """One result a warp: the lanes sum parts of it and exchange them by shuffles."""
    if [loop.index for loop in reduced] != [index]:
        raise PlanRefused("D341", f"`lanes {index}`: stage `{stage.name}` does not sum over `{index}` alone", span)
    why = f"sum over {index} shared by {LANES} lanes"
    inner = (f"{index}.turn", f"{index}.lane")
    yield s.Split(stage.name, span, why, index, (None, LANES), inner)
    if private and not spatial:  # every warp does it, and every lane has the sum
        yield s.Bind(stage.name, span, why, inner[1], "threadIdx.x")
        return
    name = spatial[0].index if spatial else "result"
    if not spatial:
        yield s.AddUnitLoop(stage.name, span, why, name)
    elif len(spatial) > 1:
        name = "element"
        yield s.Fuse(stage.name, span, why, tuple(loop.index for loop in spatial), name)
    outer = (f"{name}.turn", f"{name}.warp")
    yield s.Split(stage.name, span, why, name, (None, warps), outer)
    yield s.Bind(stage.name, span, why, outer[1], "threadIdx.y")
    yield s.Bind(stage.name, span, why, inner[1], "threadIdx.x")


def piece_bytes(home: Home) -> int:
    """Bytes that a lane copies at once."""
    return int(home.attributes.get("via.bytes", 16))


def copy(stage: PlannedStage, kernel: Kernel, warps: int, vector: int) -> Iterator[s.Step]:
    """A tile from global memory into shared memory, `vector` elements a lane at a time; of a small one, warps to spare
    copy nothing."""
    home = kernel.homes[stage.tensor]
    span, why = home.span, f"{stage.tensor} in pieces of {vector} elements"
    loops = tuple(loop.index for loop in stage.loops)
    name = loops[0]
    if len(loops) > 1:
        name = "element"
        yield s.Fuse(stage.name, span, why, loops, name)
    names = (f"{name}.turn", f"{name}.warp", f"{name}.lane", f"{name}.piece")
    yield s.Split(stage.name, span, why, name, (None, warps, LANES, vector), names)
    yield s.Bind(stage.name, span, why, names[1], "threadIdx.y")
    yield s.Bind(stage.name, span, why, names[2], "threadIdx.x")
    yield s.Vectorize(stage.name, span, why, names[3])
