"""Tensors in the registers of one thread: an index is dealt over the lanes, and each lane keeps its values of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import evolve

from kdsl.check.model import Kernel
from kdsl.plan import steps as s
from kdsl.plan.cuda.warp import LANES
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


def deal_private(stage: PlannedStage, tensors: Mapping[str, Tensor], warps: int) -> Iterator[s.Step]:
    """Every lane does its own values of the index that it owns, everything else in it, unrolled."""
    (dealt, by), *others = owners(stage, tensors)
    if others:
        raise PlanRefused(
            "D351", f"stage `{stage.name}` works on registers of lanes that own `{dealt} by {by}` and of lanes that own"
            f" `{others[0][0]} by {others[0][1]}`", stage.span,
            required="one index in one width: every lane owns its values of it",
            help=("place one of the tensors in shared memory",),
        )  # fmt: skip
    span, each = stage.span, f", {by} neighbours each" if by > 1 else ""
    why = f"{dealt} over {warps} warps of {LANES} lanes{each}"
    loops = {loop.index: loop for loop in stage.loops if loop.kind != "scan"}
    if dealt not in loops or loops[dealt].kind != "spatial":
        raise PlanRefused(
            "D353", f"stage `{stage.name}` reads registers of lanes that own `{dealt}`, but does not run over it", span,
            observed=f"loops {', '.join(loops) or 'none'}",
            help=("place what it reads in shared memory",),
        )  # fmt: skip
    names = (f"{dealt}.turn", f"{dealt}.warp", f"{dealt}.lane")
    inner = [index for index in loops if index != dealt]
    piece = (f"{dealt}.piece",) if by > 1 else ()
    yield s.Split(stage.name, span, why, dealt, (None, warps, LANES, by)[: 3 + len(piece)], (*names, *piece))
    if inner:
        yield s.Reorder(stage.name, span, why, (*names, *inner, *piece))
    yield s.Bind(stage.name, span, why, names[1], "threadIdx.y")
    yield s.Bind(stage.name, span, why, names[2], "threadIdx.x")
    reduced = next((index for index in inner if loops[index].kind == "reduce"), None)
    if reduced is not None:
        yield s.Decompose(stage.name, span, "initial value before the sum", reduced)
    for index in inner if reduced is None else (*inner, *piece):
        yield s.Unroll(stage.name, span, "registers have no addresses", index)
    if piece and reduced is None:
        yield s.Vectorize(stage.name, span, "neighbours in one access", piece[0])
    if stage.scan is not None:
        yield s.Unroll(stage.row_block, span, "registers have no addresses", stage.scan)


def refuse_shared_numbers(tensors: Mapping[str, Tensor]) -> None:
    """A tensor without indices is in registers, where every thread has it."""
    for tensor in tensors.values():
        if tensor.memory == "shared" and not tensor.indices:
            raise PlanRefused(
                "D358", f"`{tensor.name}` is one number, which cannot lie in shared memory", tensor.span,
                observed="no index", required="an index, or registers",
                help=(f"place it where every thread has it: `{tensor.name} : {tensor.dtype} in registers`",),
            )  # fmt: skip
