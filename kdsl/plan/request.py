"""What a target family gets to plan one kernel, and what every family answers in the same way."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from kdsl.check.model import Graph, Kernel, Operator, Target
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

    @property
    def grid(self) -> tuple[tuple[str, tuple[tuple[str, int], ...]], ...]:
        return tuple((axis.axis, axis.indices) for axis in self.kernel.grid)

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
        left = [n for n, i in self.operator.indices.items() if i.mode == "sequential" and n not in self.gridded]
        return left[0] if left else None

    @property
    def guarded(self) -> str | None:
        """A sequential index that the grid enumerates."""
        indices = self.operator.indices
        return next((name for name in self.gridded if indices[name].mode == "sequential"), None)

    def refuse_undealt(self) -> None:
        """Every parallel index is the grid's, one by one: nothing inside a kernel enumerates it."""
        tiles = dict(pair for axis in self.kernel.grid for pair in axis.indices)
        for name, index in self.operator.indices.items():
            if index.mode == "parallel" and tiles.get(name) != 1:
                found = f"`{name} by {tiles[name]}`" if name in tiles else "not in the grid"
                raise PlanRefused(
                    "D138", f"the grid of kernel `{self.kernel.name}` does not deal `{name}` one by one",
                    self.kernel.grid[0].span if self.kernel.grid else self.kernel.span,
                    observed=found, required=f"`{name}` in a launch axis, without a tile",
                    help=(f"add `{name}` to the grid: every value of a parallel index is a task of its own",),
                )  # fmt: skip
