"""The derived schedule as pure data. Everything here is known before TVM is touched."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from kdsl.check.model import Carry, Graph, Operator, Read, RulePoint, Specialization, Stage
from kdsl.plan.steps import Step
from kdsl.source.span import Span
from kdsl.syntax import nodes as n


@frozen
class Loop:
    """One loop of a stage. `kind`: spatial, reduce or scan; `bound` limits a reduction (`p < i`)."""

    index: str
    extent: int
    kind: str
    bound: n.Expr | None = None


@frozen
class Tensor:
    """A tensor of the kernel. `scope`: step (made anew in each step), carried, or call (workspace).

    `shape` follows `indices`; `bytes` counts one instance.
    """

    name: str
    indices: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    memory: str
    scope: str
    span: Span = field(repr=False, eq=False)

    @property
    def elements(self) -> int:
        count = 1
        for extent in self.shape:
            count *= extent
        return count


@frozen
class PlannedStage:
    """One sblock. `kind`: compute (a stage of the graph), round, load, commit or store.

    `source` is what a stage that is not the graph's copies from: a view, a tensor.
    `renamed` maps a tensor of the graph to the rounded copy that this stage reads instead.
    """

    name: str
    kind: str
    tensor: str
    indices: tuple[str, ...]
    loops: tuple[Loop, ...]
    stage: Stage | None
    source: Read | None
    renamed: Mapping[str, str]
    span: Span = field(repr=False, eq=False)

    @property
    def scan(self) -> str | None:
        return self.stage.scan if self.stage is not None else None


@frozen
class Decision:
    """A choice the compiler made: printed as a `pin` line, which the rule accepts back."""

    subject: str
    key: str
    values: tuple[str, ...]
    why: str

    @property
    def line(self) -> str:
        return f"{self.subject}.{self.key} = {', '.join(self.values)}"


@frozen
class KernelPlan:
    """One kernel: a grid of tasks, inside it at most one sequential index with a body, stages before and after.

    `grid` lists the launch axes with the parallel indices they enumerate.
    """

    name: str
    parts: tuple[str, ...]
    grid: tuple[tuple[str, tuple[str, ...]], ...]
    sequential: str | None
    carries: tuple[Carry, ...]
    tensors: Mapping[str, Tensor]
    prologue: tuple[PlannedStage, ...]
    body: tuple[PlannedStage, ...]
    commits: tuple[PlannedStage, ...]
    epilogue: tuple[PlannedStage, ...]
    steps: tuple[Step, ...]
    decisions: tuple[Decision, ...]
    span: Span = field(repr=False, eq=False)

    @property
    def stages(self) -> tuple[PlannedStage, ...]:
        return self.prologue + self.body + self.commits + self.epilogue

    @property
    def grid_indices(self) -> tuple[str, ...]:
        return tuple(index for _, indices in self.grid for index in indices)


@frozen
class Plan:
    """A rule at a point, for one specialization: what `lower` turns into TIR and its schedule."""

    point: RulePoint
    operator: Operator
    specialization: Specialization
    settings: Mapping[str, object]  # every static name: sizes, parameters, forms, options
    graph: Graph
    kernels: tuple[KernelPlan, ...]

    @property
    def target(self):
        return self.point.target

    @property
    def rule(self):
        return self.point.rule
