"""A plan as a picture's content: rows of stages in order with their loops, columns of buffers with their lives."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from attrs import define, field, frozen

from kdsl.check.model import DTYPE_BYTES
from kdsl.plan import steps as s
from kdsl.plan.memory import tensor_bytes
from kdsl.plan.model import KernelPlan, Plan, PlannedStage, Tensor

REGISTERS, SHARED, THREAD, MEMORY = "registers", "shared", "thread", "memory"
GROUPS = {"registers": REGISTERS, "thread": THREAD, "lane": THREAD, "stack": THREAD, "shared": SHARED}
OUTSIDE = "global"


@frozen
class Row:
    """One sblock. `makes` is what it writes with where that lives, `loops` its nest from the outside in."""

    stage: str
    kind: str
    makes: str
    memory: str
    loops: str
    instruction: str
    depth: int


@frozen
class Column:
    """One buffer with the tensors that take turns in it: rows that write it, rows that read it. A carried one, or a
    ring, lives through the whole loop: `first` and `last` are rows."""

    tensors: tuple[str, ...]
    memory: str
    label: str
    bytes: int
    writes: tuple[int, ...]
    reads: tuple[int, ...]
    first: int
    last: int


@frozen
class Frame:
    """A loop around rows `first` to `last`."""

    title: str
    first: int
    last: int


@frozen
class Panel:
    """One kernel."""

    name: str
    title: str
    grid: tuple[str, ...]
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    frames: tuple[Frame, ...]
    totals: tuple[str, ...]
    passes_on: tuple[str, ...]
    keeper: str = "a block"  # who keeps the totals
    passes_in: str = "memory"  # where it is put for the next kernel


@frozen
class Drawing:
    title: str
    subtitle: str
    panels: tuple[Panel, ...]


def drawing(plan: Plan) -> Drawing:
    choices = {**plan.point.choices, **plan.point.form, **plan.specialization.sizes}
    options = {k: v for k, v in plan.specialization.options.items() if v not in (False, None)}
    told = ", ".join(f"{k} = {str(v).lower()}" for k, v in {**choices, **options}.items())
    panels = tuple(panel(plan, kernel) for kernel in plan.kernels)
    return Drawing(f"{plan.rule.name} schedules {plan.operator.name} on {plan.target.name}", told, panels)


def panel(plan: Plan, kernel: KernelPlan) -> Panel:
    stages = list(ordered(kernel))
    rows = tuple(row(kernel, stage, depth) for stage, depth in stages)
    columns = tuple(columns_of(kernel, [stage for stage, _ in stages]))
    inside = [at for at, (_, depth) in enumerate(stages) if depth]
    frames = ()
    if kernel.sequential is not None and inside:
        frames = (Frame(f"for {kernel.sequential} in {plan.steps_of(kernel)}", inside[0], inside[-1]),)
    title = f"computes {', '.join(kernel.parts)}; {block_text(kernel)}{beside_text(plan, kernel)}"
    where = "slots of shared memory" if kernel.passes else "memory"
    return Panel(kernel.name, title, tuple(grid_lines(kernel)), rows, columns, frames, tuple(totals(kernel)),
                 tuple(passed_on(kernel)), unit_of(kernel), where)  # fmt: skip


def block_text(kernel: KernelPlan) -> str:
    if not kernel.threads:
        return "every task runs in one thread"
    warps = kernel.threads[1]
    return f"{prod(kernel.threads)} threads {unit_of(kernel)}, {warps} warp{'s' * (warps != 1)}"


def beside_text(plan: Plan, kernel: KernelPlan) -> str:
    """Whose warps are in the same blocks, of two kernels of one launch."""
    if kernel.beside is not None:
        return f", beside those of {kernel.beside}"
    if not kernel.passes:
        return ""
    taker = next(other.name for other in plan.kernels if other.beside == kernel.name)
    return f", {next(iter(kernel.passes.values())).ring} such groups in the blocks of {taker}"


def unit_of(kernel: KernelPlan) -> str:
    """What has the memory that a panel counts."""
    if not kernel.threads:
        return "a task"
    return "a group" if kernel.passes else "a block"


def grid_lines(kernel: KernelPlan) -> Iterator[str]:
    for axis, loops in kernel.grid:
        yield f"{axis} = {', '.join(loop.text for loop in loops)}"


def ordered(kernel: KernelPlan) -> Iterator[tuple[PlannedStage, int]]:
    """Every sblock in the order it runs, with 1 for what a step of the loop repeats."""
    looped = int(kernel.sequential is not None)
    groups = ((kernel.prologue, 0), (kernel.first, 0), (kernel.copies, looped), (kernel.body, looped),
              (kernel.commits, looped), (kernel.epilogue, 0))  # fmt: skip
    for stages, depth in groups:
        for stage in stages:
            yield from ((part, depth) for part in stage.unrolled)


def row(kernel: KernelPlan, stage: PlannedStage, depth: int) -> Row:
    tensor = kernel.tensors.get(stage.tensor)
    memory = memory_of(tensor)
    nest = Nest.of(kernel, stage)
    made = f"{stage.tensor} {tensor.dtype}" if tensor is not None else stage.tensor
    return Row(stage.name, stage.kind, made, memory, nest.text, nest.instruction, depth)


def memory_of(tensor: Tensor | None) -> str:
    return MEMORY if tensor is None or tensor.scope == "call" else GROUPS.get(tensor.memory, MEMORY)


# ---- loops


@define
class Nest:
    """The loops of one sblock while its schedule steps are made: name to extent, and what is done with each."""

    extents: dict[str, int] = field(factory=dict)
    order: list[str] = field(factory=list)
    marks: dict[str, str] = field(factory=dict)
    fused: str = ""  # the loops that one loop of elements was made of
    instruction: str = ""

    @classmethod
    def of(cls, kernel: KernelPlan, stage: PlannedStage) -> Nest:
        nest = cls({loop.index: loop.extent for loop in stage.loops}, [loop.index for loop in stage.loops])
        for loop in stage.loops:
            if loop.kind == "scan":
                nest.marks[loop.index] = "one after the other"
        for step in kernel.steps:
            if step.sblock == stage.name:
                nest.make(step)
        return nest

    def make(self, step: s.Step) -> None:
        if isinstance(step, s.Fuse):
            at = min(self.order.index(name) for name in step.loops)
            self.extents[step.name] = prod(self.extents[name] for name in step.loops)
            self.fused = " x ".join(step.loops)
            self.order = [name for name in self.order if name not in step.loops]
            self.order.insert(at, step.name)
        elif isinstance(step, s.Split):
            at, whole = self.order.index(step.loop), self.extents[step.loop]
            known = prod(factor for factor in step.factors if factor is not None)
            for name, factor in zip(step.names, step.factors, strict=True):
                self.extents[name] = factor if factor is not None else -(-whole // known)
            self.order[at : at + 1] = list(step.names)
        elif isinstance(step, s.Reorder):
            places = sorted(self.order.index(name) for name in step.loops)
            for place, name in zip(places, step.loops, strict=True):
                self.order[place] = name
        elif isinstance(step, s.AddUnitLoop):
            self.extents[step.name] = 1
            self.order.insert(0, step.name)
        elif isinstance(step, (s.Bind, s.BindWarps, s.Vectorize, s.Unroll, s.Parallel)):
            self.marks[step.loop] = mark_of(step)
        elif isinstance(step, s.Tensorize):
            self.order = self.order[:-3]
            self.instruction = step.intrinsic.removeprefix("kdsl_").replace("_", ".")
        elif isinstance(step, s.FragmentLoops):
            self.order, self.fused = [], " x ".join(step.loops)
            self.instruction = f"fragments of {step.instruction}"

    @property
    def text(self) -> str:
        """`i x d: 4 turns, 4 warps, 32 lanes, vectors of 4`; loops of one trip are left out."""
        shown, before = [], ""
        for name in self.order:
            if self.extents[name] > 1:
                base = name.partition(".")[0]
                said = self.said(name)
                shown.append(said.removeprefix(f"{base}: ") if base == before else said)
                before = base
        told = ", ".join(shown)
        return f"{self.fused}: {told}" if self.fused and told else self.fused or told

    def said(self, name: str) -> str:
        extent, mark = self.extents[name], self.marks.get(name, "")
        base, _, part = name.partition(".")
        whose = "" if base == "element" and self.fused else f"{base}: " if part else ""
        if mark.startswith("threadIdx") and part in ("warp", "lane"):
            return f"{whose}{extent} {part}s"
        if mark == VECTOR:
            return f"{whose}vectors of {extent}"
        named = {"turn": f"{whose}{extent} turns", "tile": f"{extent} tiles of {base}"}.get(part, f"{name} {extent}")
        where = {"threadIdx.y": " over warps", "threadIdx.x": " over lanes"}.get(mark, f" {mark}" if mark else "")
        return named + where


VECTOR = "vector"


def mark_of(step: s.Step) -> str:
    if isinstance(step, s.Bind):
        return step.thread
    if isinstance(step, s.BindWarps):
        return "threadIdx.y"
    return {s.Vectorize: VECTOR, s.Unroll: "unrolled", s.Parallel: "parallel"}[type(step)]


# ---- buffers


def columns_of(kernel: KernelPlan, stages: list[PlannedStage]) -> Iterator[Column]:
    """Buffers of the kernel's own, in the order in which they are first written, by memory."""
    held: dict[str, list[Tensor]] = {}
    for tensor in kernel.tensors.values():
        if tensor.scope != "call":
            held.setdefault(tensor.held_in, []).append(tensor)
    found = [column(kernel, tensors, stages) for tensors in held.values()]
    order = {REGISTERS: 0, THREAD: 1, SHARED: 2, MEMORY: 3}
    yield from sorted((c for c in found if c is not None), key=lambda c: (order[c.memory], c.first))


def column(kernel: KernelPlan, tensors: list[Tensor], stages: list[PlannedStage]) -> Column | None:
    names = {tensor.name for tensor in tensors}
    writes = tuple(at for at, stage in enumerate(stages) if stage.tensor in names)
    reads = tuple(at for at, stage in enumerate(stages) if names & read_by(stage))
    touched = sorted({*writes, *reads})
    if not touched:
        return None
    owner = next((t for t in tensors if t.name == t.held_in), tensors[0])
    looped = [at for at, (_, depth) in enumerate(ordered(kernel)) if depth]
    first, last = touched[0], touched[-1]
    if looped and (owner.scope == "carried" or owner.ring > 1):
        first, last = min(first, looped[0]), max(last, looped[-1])
    extras = ["in a slot"] * (owner.scope == "passed")
    extras += [f"pad {owner.pad}"] * bool(owner.pad) + [f"ring {owner.ring}"] * (owner.ring > 1)
    if owner.fragment is not None:
        extras.append(f"{owner.fragment.instruction}.{owner.fragment.operand}")
    shape = "x".join(map(str, owner.shape)) or "1"
    label = " ".join([owner.dtype, shape, *extras])
    order = [stages[at].tensor for at in writes if stages[at].tensor in names]
    ordered_names = tuple(dict.fromkeys([*order, *(t.name for t in tensors)]))
    return Column(ordered_names, memory_of(owner), label, tensor_bytes(owner), writes, reads, first, last)


def read_by(stage: PlannedStage) -> set[str]:
    if stage.stage is None:
        return {stage.source.tensor} if stage.source is not None else set()
    sums = {inner.tensor for inner in stage.inner}
    return sums | {stage.renamed.get(read.tensor, read.tensor) for read in stage.stage.reads}


def totals(kernel: KernelPlan) -> Iterator[str]:
    """Bytes a block keeps in every memory."""
    held: dict[str, int] = {}
    for tensor in kernel.tensors.values():
        if tensor.scope not in ("call", "passed") and tensor.held_in == tensor.name:
            held[tensor.memory] = held.get(tensor.memory, 0) + tensor_bytes(tensor)
    yield from (f"{memory} {size} bytes" for memory, size in held.items())


def passed_on(kernel: KernelPlan) -> Iterator[str]:
    """What the kernel leaves for others, in the workspace or in slots of theirs, with the bytes of one step."""
    made = {stage.tensor for stage in kernel.stages if stage.kind != "copy"}
    for name, tensor in kernel.tensors.items():
        if tensor.scope in ("call", "passed") and name in made:
            yield f"{name} {tensor.dtype} {tensor.elements * DTYPE_BYTES[tensor.dtype]} B"
