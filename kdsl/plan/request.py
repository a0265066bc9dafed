"""What a target family gets to plan one kernel, and what every family answers in the same way."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from kdsl.check.model import Graph, GridLoop, Kernel, Operator, Target
from kdsl.plan.model import Tensor
from kdsl.plan.refusal import PlanRefused


@frozen
class KernelRequest:
    """One kernel of a rule at a point: the part of the graph it computes, every static name, and the tensors that
    the kernels before it made."""

    operator: Operator
    graph: Graph
    kernel: Kernel
    target: Target
    settings: Mapping[str, object]
    made: Mapping[str, Tensor]
    dtypes: Mapping[str, str]  # of the ports
    layouts: Mapping[str, str]  # what the rule claims of the ports' strides
    handed: frozenset[str] = frozenset()  # tensors in shared memory that warps of another kernel take from there

    @property
    def grid(self) -> tuple[tuple[str, tuple[GridLoop, ...]], ...]:
        return tuple((axis.axis, axis.loops) for axis in self.kernel.grid)

    @property
    def gridded(self) -> set[str]:
        return {index for axis in self.kernel.grid for index, _ in axis.indices}

    @property
    def sequential(self) -> str | None:
        """The index the kernel steps through: what its carries run over, or the one left outside the grid."""
        over = {carry.over for carry in self.graph.carries}
        if len(over) > 1:
            raise PlanRefused(
                "D137", f"kernel `{self.kernel.name}` carries over {' and '.join(sorted(over))}", self.kernel.span
            )
        if over:
            return over.pop()
        return self.operator.steps if self.operator.steps not in self.gridded else None

    @property
    def guarded(self) -> tuple[str, ...]:
        """Sequential indices that the grid enumerates."""
        return tuple(name for name in self.operator.indices
                     if name in self.gridded and self.operator.indices[name].mode == "sequential")  # fmt: skip

    @property
    def run(self) -> str | None:
        """The index in the grid whose values are the runs that a task steps through."""
        cut = ((name, self.operator.indices[name].cuts) for name in self.guarded)
        return next((name for name, cuts in cut if cuts is not None and cuts == self.sequential), None)

    def refuse_unordered(self) -> None:
        """`order longest_first` is of an axis's outermost index, a parallel one, by the steps of a GPU's block."""
        for axis in (axis for axis in self.kernel.grid if axis.order is not None):
            loop, modes = axis.loops[0], self.operator.indices
            if self.target.family != "cuda":
                found, needed = f"a grid of target `{self.target.name}`", "a GPU, which starts blocks in their order"
            elif loop.within is not None or loop.tile > 1 or modes[loop.index].mode != "parallel":
                found, needed = f"`{loop.text}`", "a parallel index without a tile"
            elif self.sequential is None:
                found, needed = f"kernel `{self.kernel.name}` takes no steps", "an index to step over"
            else:
                continue
            raise PlanRefused(
                "D365", f"axis `{axis.axis}` of kernel `{self.kernel.name}` has no values that are longer than others",
                axis.span, observed=found, required=needed, help=(f"leave out `order {axis.order}`",),
            )  # fmt: skip

    def refuse_undealt(self) -> None:
        """Every parallel index is the grid's, one by one: nothing inside a kernel enumerates it. Nor the runs in which
        a carry starts anew."""
        tiles = dict(pair for axis in self.kernel.grid for pair in axis.indices)
        runs = {carry.within for carry in self.graph.carries}
        for name, index in self.operator.indices.items():
            if (index.mode == "parallel" or name in runs) and tiles.get(name) != 1:
                found = f"`{name} by {tiles[name]}`" if name in tiles else "not in the grid"
                raise PlanRefused(
                    "D138", f"the grid of kernel `{self.kernel.name}` does not deal `{name}` one by one",
                    self.kernel.grid[0].span if self.kernel.grid else self.kernel.span,
                    observed=found, required=f"`{name}` in a launch axis, without a tile",
                    help=(f"add `{name}` to the grid: every value of it is a task of its own",),
                )  # fmt: skip
        for name in self.gridded:
            cuts = self.operator.indices[name].cuts
            if cuts is not None and cuts != self.sequential:
                raise PlanRefused(
                    "D138", f"kernel `{self.kernel.name}` deals the runs `{name}` of `{cuts}` and does not step through"
                    " a run", self.kernel.grid[0].span, observed=f"`{cuts}` in the grid as well",
                    required=f"`{name}` or `{cuts}`", help=(f"leave `{name}` out of this grid",),
                )  # fmt: skip
