"""The derived schedule as pure data. Everything here is known before TVM is touched."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from kdsl.check.model import Carry, Graph, GridLoop, Operator, Read, RulePoint, Specialization, Stage
from kdsl.plan.layout import required_layouts, transposing_options
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
class Fragment:
    """A tensor in the registers of a warp, as operand `operand` of a matrix instruction holds it.

    `rows` is the index dealt over the warps, `columns` the other one.
    """

    instruction: str
    operand: str
    rows: str
    columns: str


@frozen
class Tensor:
    """A tensor of the kernel. `scope`: step (made anew in each step), carried, or call (workspace).

    `shape` follows `indices`, the operator's order; `order` is how it is stored, outermost first. `pad` widens
    the rows by elements, `ring` keeps that many steps of it.
    """

    name: str
    indices: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    memory: str
    scope: str
    span: Span = field(repr=False, eq=False)
    order: tuple[str, ...] = ()
    pad: int = 0
    ring: int = 1
    swizzle: int = 0  # bytes within which pieces of 16 change places from row to row
    panel: int = 0  # columns that lie together, panel behind panel, as descriptors name them
    fragment: Fragment | None = None
    buffer: str = ""  # the tensor whose memory it uses; empty: its own
    owner: tuple[str, int] | None = None  # the index that lanes own, and how many neighbouring values each has
    rows: tuple[str, int] | None = None  # the index that warps own beside it, and how many neighbouring values each has
    over: tuple[str, int] | None = None  # the index whose values in shared memory warps own, and how many each has
    steps: str | None = None  # the sequential index for whose every value it is made; None: once a task

    @property
    def held_in(self) -> str:
        return self.buffer or self.name

    @property
    def of_warps(self) -> bool:
        """Whether every panel is what one warp has."""
        return bool(self.panel) and self.over is not None

    @property
    def elements(self) -> int:
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def stored(self) -> tuple[int, ...]:
        """Positions of `indices` in storage order."""
        return tuple(self.indices.index(i) for i in self.order) if self.order else tuple(range(len(self.indices)))


@frozen
class PlannedStage:
    """One sblock. `kind`: compute (a stage of the graph), copy, ahead (a step ahead, in registers), round, load, commit
    or store.

    `source` is what a stage that is not the graph's copies from: a view, a tensor. A product has `left`, the
    operand whose rows are the result's, as the matrix instruction takes it.
    `renamed` maps a tensor of the graph to the rounded copy that this stage reads instead. `inner` are stages that
    run before it in every row of its scan.
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
    left: str | None = None
    inner: tuple[PlannedStage, ...] = ()

    @property
    def scan(self) -> str | None:
        return self.stage.scan if self.stage is not None else None

    @property
    def touched(self) -> tuple[str, ...]:
        """Tensors that the stage itself writes and reads, under the names it knows them by; what it writes first."""
        names = [self.tensor]
        if self.source is not None:
            names.append(self.source.tensor)
        if self.stage is not None:
            names += [self.renamed.get(read.tensor, read.tensor) for read in self.stage.reads]
        return tuple(dict.fromkeys(names))

    @property
    def row_block(self) -> str:
        """The block of one row of a scan."""
        return f"{self.name}_row"

    @property
    def unrolled(self) -> tuple[PlannedStage, ...]:
        """The stage with those that run inside its rows."""
        return (*self.inner, self)


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

    `grid` lists the launch axes with the loops they enumerate. `threads` is the shape of a block, lanes first; empty
    on a CPU. `guarded` are sequential indices that the grid enumerates up to their bounds, or by their slots: blocks
    beyond an extent do nothing.
    """

    name: str
    parts: tuple[str, ...]
    grid: tuple[tuple[str, tuple[GridLoop, ...]], ...]
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
    copies: tuple[PlannedStage, ...] = ()  # what a step fetches, `ring - 1` steps ahead
    ahead: tuple[tuple[PlannedStage, ...], ...] = ()  # the same for each of the first `ring - 1` steps, before the loop
    loads: tuple[PlannedStage, ...] = ()  # what lanes load in a step for the next one
    first_loads: tuple[PlannedStage, ...] = ()  # the same for the first step, before the loop
    threads: tuple[int, ...] = ()
    guarded: tuple[str, ...] = ()
    run: str | None = None  # one of `guarded`, if it deals out runs of the steps: a task steps through its own run
    barriers: tuple[str, ...] = ()  # stages that a barrier stands before
    syncs: tuple[str, ...] = ()  # stages before which the lanes of a warp wait for each other alone
    apart: bool = False  # no warp meets, in shared memory, what another one of the kernel does
    described: bool = False  # Tensor Cores read what is fetched through descriptors, so copies need a fence
    settled: bool = False  # in every step a barrier stands after the last use of what is fetched
    aligned: Mapping[str, int] = field(factory=dict)  # bytes that ports must start at multiples of
    resident: int | None = None  # blocks that an SM must be able to hold: it bounds the registers
    turns: Mapping[str, int] = field(factory=dict)  # by how many warps stages on few warps are turned
    together: tuple[tuple[str, ...], ...] = ()  # stages on columns that lanes own, done row by row
    at_once: int = 1  # rows of those whose reads of shared memory come before the first one's writes
    registers: int | None = None  # of a thread, where kernels of one launch deal them out
    beside: str | None = None  # the kernel whose warps share its blocks and pass it tensors in rings of shared memory
    passed: Mapping[str, str] = field(factory=dict)  # tensors that come from there, and what they are called there
    passes: Mapping[str, Tensor] = field(factory=dict)  # the other way: what it writes, and the ring that takes it

    @property
    def stages(self) -> tuple[PlannedStage, ...]:
        first, ahead = (*self.first, *self.first_loads), (*self.copies, *self.loads)
        groups = (self.prologue, first, ahead, self.body, self.commits, self.epilogue)
        return tuple(stage for group in groups for outer in group for stage in outer.unrolled)

    @property
    def first(self) -> tuple[PlannedStage, ...]:
        """Every fetch before the first step."""
        return tuple(stage for group in self.ahead for stage in group)

    @property
    def ring(self) -> int:
        """How many steps of every fetched tensor are kept; 1: fetched when it is used."""
        return max((self.tensors[stage.tensor].ring for stage in self.copies), default=1)

    @property
    def grid_loops(self) -> tuple[str, ...]:
        """Names of the grid's loops, outermost first."""
        return tuple(loop.name for _, loops in self.grid for loop in loops)

    @property
    def tiles(self) -> dict[str, int]:
        """Indices that the grid deals in tiles."""
        return {loop.index: loop.tile for _, loops in self.grid for loop in loops if loop.tile > 1}


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
    def launches(self) -> tuple[KernelPlan, ...]:
        """The kernels that are launched: of two in one launch the one that takes what the other makes."""
        return tuple(kernel for kernel in self.kernels if not kernel.passes)

    def launched_with(self, kernel: KernelPlan) -> tuple[KernelPlan, ...]:
        """The kernels of a launch, in the order of the rule."""
        return tuple(other for other in self.kernels if other.name in (kernel.beside, kernel.name))

    @property
    def layouts(self) -> dict[str, str]:
        """What the rule requires of strides, by port: unit_stride or dense."""
        return required_layouts(self.point.rule)

    @property
    def transposed(self) -> dict[str, str]:
        """The option that exchanges the last two axes of a port, by port."""
        return transposing_options(self.operator)

    def steps_of(self, kernel: KernelPlan) -> str:
        """What the kernel's loop runs over, as the operator writes it."""
        said = self.operator.indices[kernel.sequential].said
        return f"run {kernel.run} of {said}" if kernel.run is not None else said

    @property
    def target(self):
        return self.point.target

    @property
    def rule(self):
        return self.point.rule
