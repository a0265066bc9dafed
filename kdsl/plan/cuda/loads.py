"""Views that lanes load into registers a step before they use them.

`bx : in registers lanes i by 1 ring 2 via ld.global` is for what is too small or too scattered for asynchronous copies.
When a step begins, a lane loads its elements for the next one, and nothing waits for them before the step is over.
Registers have no slots that a number chooses, so the values move on as carried tensors do.

    before the steps    bx = load(first step)
    in each step        bx_next = load(next step), if there is one; the stages, which read bx; bx = bx_next
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from attrs import evolve, frozen

from kdsl.check.model import LOAD, Home, Kernel, Operator, Read
from kdsl.plan.model import PlannedStage, Tensor
from kdsl.plan.refusal import PlanRefused
from kdsl.plan.stages import KernelStages

SLOTS = 2  # of registers: this step's values and the next one's


@frozen
class Loads:
    """What is loaded ahead: as the stages know it, for the first step, for the next one, and the moves between them."""

    tiles: tuple[PlannedStage, ...] = ()
    first: tuple[PlannedStage, ...] = ()
    ahead: tuple[PlannedStage, ...] = ()
    moves: tuple[PlannedStage, ...] = ()

    def turned(self, turned: Mapping[str, int], body: Iterable[PlannedStage]) -> dict[str, int]:
        """The first warp of every load and move: that of the stages that read what is loaded. Raises PlanRefused."""
        found = {}
        for tile, *parts in zip(self.tiles, self.first, self.ahead, self.moves, strict=True):
            readers = [part.name for stage in body for part in stage.unrolled if tile.tensor in part.touched]
            warps = dict.fromkeys(turned.get(name, 0) for name in readers)
            if len(warps) > 1:
                raise PlanRefused(
                    "D367", f"`{tile.tensor}` is read on {len(warps)} warps, and each lane loads for itself", tile.span,
                    observed=f"stages {', '.join(readers)}, which start at warps {', '.join(map(str, warps))}",
                    required="stages on one warp, or on all", help=(f"place `{tile.tensor}` in shared memory",),
                )  # fmt: skip
            found.update({part.name: warp for part in parts for warp in warps})
        return found


def is_load(home: Home) -> bool:
    """Whether lanes load the tensor for themselves."""
    return home.attributes.get("via") == LOAD


def loads_of(
    stages: KernelStages, tensors: Mapping[str, Tensor], kernel: Kernel, sequential: str | None
) -> tuple[KernelStages, dict[str, Tensor], Loads]:
    """The stages and tensors with what is loaded ahead taken apart. A kernel without steps leaves the ring as it is."""
    tiles = tuple(
        stage for stage in stages.body if stage.kind == "tile" and is_load(kernel.homes[stage.tensor])
        and tensors[stage.tensor].ring == SLOTS and sequential is not None
    )  # fmt: skip
    found, body = dict(tensors), tuple(stage for stage in stages.body if stage not in tiles)
    for tile in tiles:
        now = evolve(tensors[tile.tensor], scope="carried", ring=1)
        later = evolve(now, name=next_name(now.name), scope="step")
        found |= {now.name: now, later.name: later}
    first = tuple(evolve(tile, kind="ahead", name=f"{tile.name}_first") for tile in tiles)
    ahead = tuple(evolve(tile, kind="ahead", tensor=next_name(tile.tensor)) for tile in tiles)
    moves = tuple(map(moved, tiles))
    commits = (*stages.commits, *moves)
    return evolve(stages, body=body, commits=commits), found, Loads(tiles, first, ahead, moves)


def next_name(tensor: str) -> str:
    return f"{tensor}_next"


def moved(tile: PlannedStage) -> PlannedStage:
    """The stage after which the next step's values are this step's."""
    read = Read(next_name(tile.tensor), tile.source.indices, tile.span)
    return evolve(tile, kind="ahead", name=f"{tile.tensor}_commit", source=read)


def refuse_wrong_loads(tensors: Mapping[str, Tensor], operator: Operator, kernel: Kernel) -> None:
    """A load ahead is of a view, by the lanes that own its elements, for one step. Raises PlanRefused."""
    for name, home in kernel.homes.items():
        if is_load(home) and name in tensors:
            for wrong, what, observed, required, help_ in faults(tensors[name], home, operator):
                if wrong:
                    raise PlanRefused("D367", f"`{name}` {what}", home.span, observed=observed, required=required,
                                      help=(help_,))  # fmt: skip


def faults(tensor: Tensor, home: Home, operator: Operator) -> Iterator[tuple[bool, str, str, str, str]]:
    index = next(iter(tensor.indices), "i")
    slots = f"`ring {SLOTS}`"
    yield (tensor.name not in operator.views, "is computed here, not loaded", f"via {LOAD}", "a view of a port",
           f"leave out `via {LOAD}`")  # fmt: skip
    yield ("lanes" not in home.attributes, "is loaded by lanes, and none owns its elements", "no `lanes`",
           "an index whose values lanes own", f"say which: `lanes {index} by 1`")  # fmt: skip
    yield (tensor.ring > SLOTS, f"has {tensor.ring} slots in registers, which no number can choose",
           f"`ring {tensor.ring}`", f"{slots}: this step's values and the next one's",
           f"write {slots}, or fetch it into shared memory with `via cp.async of 16 bytes`")  # fmt: skip
