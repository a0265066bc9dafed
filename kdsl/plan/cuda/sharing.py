"""Shared memory that tensors of a step use one after the other.

TVM merges shared allocations too, but gives a tensor the place of a smaller one and sets its barriers before it
does. So the plan decides: tensors of one shape and type whose lifetimes do not meet are one buffer, on which TVM
then sees every hazard; and all buffers stay in use until the end of the step, so that TVM merges none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve, frozen

from kdsl.check.graph import strip
from kdsl.plan.model import PlannedStage, Tensor
from kdsl.plan.order import needs
from kdsl.syntax import nodes as n


@frozen
class Life:
    """Positions in the step's order: where a tensor is made, and where it is read for the last time."""

    made: int
    last: int


def with_shared_buffers(
    tensors: Mapping[str, Tensor], body: Sequence[PlannedStage], fetched: frozenset[str], landed: frozenset[str]
) -> dict[str, Tensor]:
    """Tensors with the buffer that holds each; `fetched` ones have rings of their own, `landed` ones are there
    before the first stage."""
    lives = lifetimes(tensors, body, fetched, landed)
    found = dict(tensors)
    owners: dict[str, str] = {name: name for name in sorted(landed)}  # buffer -> the tensor in it now
    for position, stage in enumerate(body):
        name = stage.tensor
        if name not in lives or lives[name].made != position or sums(stage):
            continue
        free = [
            b
            for b, owner in owners.items()
            if fits(tensors[b], tensors[name]) and over(lives[owner], owner, stage, position)
        ]
        buffer = free[0] if free else name
        owners[buffer] = name
        found[name] = evolve(tensors[name], buffer=buffer)
    return found


def lifetimes(
    tensors: Mapping[str, Tensor], body: Sequence[PlannedStage], fetched: frozenset[str], landed: frozenset[str]
) -> dict[str, Life]:
    lives: dict[str, Life] = {name: Life(-1, -1) for name in landed}
    for position, stage in enumerate(body):
        for part in stage.unrolled:
            if part.tensor in tensors and tensors[part.tensor].memory == "shared" and part.tensor not in fetched:
                lives.setdefault(part.tensor, Life(position, position))
            for name in needs(part) & set(lives):
                lives[name] = evolve(lives[name], last=position)
    return lives


def sums(stage: PlannedStage) -> bool:
    """A sum is written through registers by a step that needs its tensor to have one writer."""
    return stage.stage is not None and stage.stage.reduction is not None


def fits(held: Tensor, wanted: Tensor) -> bool:
    return laid_out(held) == laid_out(wanted)


def laid_out(tensor: Tensor) -> tuple:
    return tensor.shape, tensor.dtype, tensor.pad, tensor.stored, tensor.swizzle, tensor.panel


def over(life: Life, tensor: str, stage: PlannedStage, position: int) -> bool:
    """Whether a buffer is free for what `stage` makes: read for the last time before, or here and in place."""
    return life.last < position or (life.last == position and in_place(tensor, stage))


def in_place(tensor: str, stage: PlannedStage) -> bool:
    """Every element that the stage reads of the tensor is the one that it writes at that moment."""
    if stage.stage is None or stage.inner or stage.stage.reduction is not None:
        return False
    identity = tuple(stage.indices)
    for read in stage.stage.reads:
        if stage.renamed.get(read.tensor, read.tensor) == tensor:
            indices = tuple(strip(i).text if isinstance(strip(i), n.Name) else "" for i in read.indices)
            if indices != identity:
                return False
    return True
