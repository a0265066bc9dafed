"""Tensors in the registers of one thread: an index is dealt over the lanes, and each lane keeps its values of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import evolve

from kdsl.check.model import Kernel
from kdsl.plan import steps as s
from kdsl.plan.cuda.warp import LANES, warp_loop
from kdsl.plan.model import PlannedStage, Tensor
from kdsl.plan.refusal import PlanRefused

NUMBER = "thread"  # every thread has its own
OWNED = "lane"  # elements belong to the lane that owns their value of the dealt index


def owned_by_lanes(kernel: Kernel, tensor: str) -> bool:
    """Whether the rule deals the tensor's elements over lanes."""
    home = kernel.homes.get(tensor)
    return home is not None and home.memory == "registers" and "lanes" in home.attributes


def with_private(tensors: Mapping[str, Tensor], kernel: Kernel) -> dict[str, Tensor]:
    """Tensors placed `in registers lanes ...` are the lane's own; a number in registers every lane has."""
    found = {}
    for name, tensor in tensors.items():
        home = kernel.homes.get(name)
        if tensor.memory == "registers" and not tensor.indices:
            tensor = evolve(tensor, memory=NUMBER)
        elif owned_by_lanes(kernel, name):
            owner = home.attributes["lanes"][0]
            if owner[0] not in tensor.indices:
                raise PlanRefused(
                    "D352", f"`{name}` has no index `{owner[0]}`, so no lane owns it", home.span,
                    help=(f"place it where all lanes see it: `{name} : {tensor.dtype} in shared`",),
                )  # fmt: skip
            tensor = evolve(tensor, memory=OWNED, owner=owner)
        found[name] = tensor
    return found


def owners(stage: PlannedStage, tensors: Mapping[str, Tensor]) -> tuple[tuple[str, int], ...]:
    """The indices whose lanes own what a stage reads or writes in registers of a thread; at most one is right."""
    found = [tensors[name].owner for name in stage.touched if name in tensors]
    return tuple(dict.fromkeys(owner for owner in found if owner))


def touches_private(stage: PlannedStage, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a stage reads or writes registers of a thread."""
    return bool(owners(stage, tensors))


def rows_of(stage: PlannedStage, tensors: Mapping[str, Tensor]) -> tuple[str, int] | None:
    """The index whose values lie over warps where lanes own another one, and how many of them a warp has."""
    found = (tensors[name].rows for name in stage.touched if name in tensors)
    return next((rows for rows in found if rows is not None), None)


def in_all_warps(stage: PlannedStage, tensors: Mapping[str, Tensor]) -> bool:
    """Whether every warp does a stage without rows for itself, since it leaves the result in registers."""
    tensor = tensors.get(stage.tensor)
    return tensor is not None and tensor.memory in (OWNED, NUMBER)


def deal_private(stage: PlannedStage, tensors: Mapping[str, Tensor], warps: int) -> Iterator[s.Step]:
    """Every lane does its own values of the index that it owns, everything else in it, unrolled."""
    dealt, by = _owner(stage, tensors)
    span, each = stage.span, f", {by} neighbours each" if by > 1 else ""
    loops = {loop.index: loop for loop in stage.loops if loop.kind != "scan"}
    inner = [index for index in loops if index != dealt]
    piece = (f"{dealt}.piece",) if by > 1 else ()
    rows = rows_of(stage, tensors)
    if rows is None:
        why = f"{dealt} over {warps} warps of {LANES} lanes{each}"
        outer, factors = (f"{dealt}.turn", f"{dealt}.warp", f"{dealt}.lane"), (None, warps, LANES)
    else:
        why = f"{dealt} over {LANES} lanes{each}"
        outer, factors = (f"{dealt}.turn", f"{dealt}.lane"), (None, LANES)
    if by > 1:
        factors = (*factors, by)
    warp = outer[1:-1]
    if rows is not None:
        warp, inner = yield from _rows_over_warps(stage, tensors, rows, inner, loops, warps)
    yield s.Split(stage.name, span, why, dealt, factors, (*outer, *piece))
    if rows is not None:
        outer = (outer[0], *warp, outer[-1])
    if inner or warp and rows is not None:
        yield s.Reorder(stage.name, span, why, (*outer, *inner, *piece))
    for name in warp:
        yield s.Bind(stage.name, span, why, name, "threadIdx.y")
    yield s.Bind(stage.name, span, why, outer[-1], "threadIdx.x")
    reduced = next((index for index in inner if index in loops and loops[index].kind == "reduce"), None)
    if reduced is not None:
        yield s.Decompose(stage.name, span, "initial value before the sum", reduced)
    for index in inner if reduced is None else (*inner, *piece):
        yield s.Unroll(stage.name, span, "registers have no addresses", index)
    if piece and reduced is None:
        yield s.Vectorize(stage.name, span, "neighbours in one access", piece[0])
    if stage.scan is not None:
        yield s.Unroll(stage.row_block, span, "registers have no addresses", stage.scan)


def _owner(stage: PlannedStage, tensors: Mapping[str, Tensor]) -> tuple[str, int]:
    """The index that lanes own and that the stage runs over, and how many neighbours each has. Raises PlanRefused."""
    (dealt, by), *others = owners(stage, tensors)
    if others:
        raise PlanRefused(
            "D351", f"stage `{stage.name}` works on registers of lanes that own `{dealt} by {by}` and of lanes that own"
            f" `{others[0][0]} by {others[0][1]}`", stage.span,
            required="one index in one width: every lane owns its values of it",
            help=("place one of the tensors in shared memory",),
        )  # fmt: skip
    kinds = {loop.index: loop.kind for loop in stage.loops if loop.kind != "scan"}
    if kinds.get(dealt) != "spatial":
        raise PlanRefused(
            "D353", f"stage `{stage.name}` reads registers of lanes that own `{dealt}`, but does not run over it",
            stage.span, observed=f"loops {', '.join(kinds) or 'none'}",
            help=("place what it reads in shared memory",),
        )  # fmt: skip
    return dealt, by


def _rows_over_warps(stage: PlannedStage, tensors, rows: tuple[str, int], inner: list, loops, warps: int):
    """A warp does its own rows of what has rows; what has none every warp does for itself, or the first one for all.

    The loop over warps, if any, and the loops inside of a lane.
    """
    index, tile = rows
    span, why = stage.span, f"{index} over {warps} warps"
    spatial = [name for name, loop in loops.items() if loop.kind == "spatial"]
    if index in spatial:
        names = (f"{index}.warp", f"{index}.row")
        yield s.Split(stage.name, span, why, index, (warps, tile), names)
        return names[:1], [names[1] if name == index else name for name in inner]
    if warp_loop(index) in spatial:
        return (warp_loop(index),), [name for name in inner if name != warp_loop(index)]
    if not in_all_warps(stage, tensors):
        yield s.AddUnitLoop(stage.name, span, "once a block", "once")
        yield s.BindWarps(stage.name, span, "once a block", "once", warps)
    return (), inner


def refuse_shared_numbers(tensors: Mapping[str, Tensor]) -> None:
    """A tensor without indices is in registers, where every thread has it."""
    for tensor in tensors.values():
        if tensor.memory == "shared" and not tensor.indices:
            raise PlanRefused(
                "D358", f"`{tensor.name}` is one number, which cannot lie in shared memory", tensor.span,
                observed="no index", required="an index, or registers",
                help=(f"place it where every thread has it: `{tensor.name} : {tensor.dtype} in registers`",),
            )  # fmt: skip
