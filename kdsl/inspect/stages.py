"""A compiled kernel by the stages of its plan: their instructions, shared accesses, and facts of both."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from attrs import field, frozen

from kdsl.contract.verdict import Fact, weakest
from kdsl.inspect.banks import Wavefronts
from kdsl.inspect.facts import Code, overlap_fact, read, uses_fact
from kdsl.inspect.listing import Instruction, Selection, executing, on_lines
from kdsl.inspect.memory import access
from kdsl.inspect.sectors import GlobalUse
from kdsl.inspect.shared import SharedUse, memory_uses, with_tensors
from kdsl.lower.cuda import CudaSource
from kdsl.lower.lowering import Lowering
from kdsl.lower.toolchain.nvcc import SOURCE_NAME
from kdsl.plan.model import KernelPlan, PlannedStage
from kdsl.source.diagnostic import Evidence

SPACES = {"shared": ("shared", "global to shared"), "workspace": ("global", "global to shared")}
KINDS = {"load": "ld", "store": "st", "copy": "cp.async"}


@frozen
class StagedCode:
    """One launch: its plan, its CUDA with the lines of the stages, its machine code, its shared accesses. `parts` are
    all kernels of the launch, where there are several."""

    plan: KernelPlan
    source: CudaSource
    code: Code
    shared: tuple[SharedUse, ...] = field(repr=False)
    outside: tuple[GlobalUse, ...] = field(repr=False, default=())  # accesses of global memory
    parts: tuple[KernelPlan, ...] = field(repr=False, default=())

    # ---- stages ----
    @property
    def plans(self) -> tuple[KernelPlan, ...]:
        return self.parts or (self.plan,)

    @property
    def stages(self) -> tuple[PlannedStage, ...]:
        return tuple(stage for plan in self.plans for stage in plan.stages)

    def plan_with(self, stage: str | None = None, tensor: str = "") -> KernelPlan:
        """The kernel that has the stage, or else the tensor."""
        with_stage = (plan for plan in self.plans if any(s.name == stage for s in plan.stages))
        with_tensor = (plan for plan in (self.plan, *self.plans) if tensor in plan.tensors)
        return next(with_stage, None) or next(with_tensor, self.plan)

    def sblocks(self, stage: str) -> tuple[str, ...]:
        """The sblocks of a stage: a sum that its rows need has one of its own."""
        found = (part.name for s in self.stages if s.name == stage for part in s.unrolled)
        return tuple(dict.fromkeys(found))

    def has(self, stage: str) -> bool:
        return any(s.name == stage for s in self.stages)

    def selection(self, *stages: str) -> Selection:
        """Instructions of these stages, inlined device functions among them."""
        blocks = [block for stage in stages for block in self.sblocks(stage)]
        return on_lines(self.source.lines.lines(*blocks), SOURCE_NAME)

    def stage_of(self, instruction: Instruction) -> str | None:
        """The sblock that an instruction comes from; None for what sets up the kernel or a step."""
        lines = (p.line for p in instruction.places if p.file == SOURCE_NAME)
        return next((s for line in lines if (s := self.source.lines.stage_of(line)) is not None), None)

    def touching(self, tensor: str) -> tuple[PlannedStage, ...]:
        """Stages that read or write the tensor."""
        return tuple(s for s in self.stages if s.tensor == tensor or tensor in reads_of(s))

    def feeding(self, stage: str) -> tuple[str, ...]:
        """Stages that fetch asynchronously what `stage` reads."""
        read = {name for s in self.stages if s.name == stage for name in reads_of(s)}
        return tuple(s.name for s in self.stages if s.kind == "copy" and s.tensor in read)

    # ---- facts ----
    def uses(self, instruction: str, stage: str) -> Fact:
        return uses_fact(self.code, instruction, self.selection(stage))

    def overlapped(self, work: str, asynchronous: str) -> Fact:
        """The share of `work` that runs while the products of the other stage, or the copies that it reads,
        are in flight."""
        issued = self.selection(asynchronous, *self.feeding(asynchronous))
        return overlap_fact(self.code, self.selection(work), issued)

    def vector_width(self, tensor: str) -> Fact:
        """Bytes of the narrowest access in the tensor's memory by the stages that touch it: no wider than the
        tensor's own accesses are."""
        held = self.plan_with(tensor=tensor).tensors.get(tensor)
        memory = "workspace" if held is None or held.scope == "call" else held.memory
        stages = self.touching(tensor)
        if memory not in SPACES or not stages:
            return Fact(None, "bytes", Evidence.UNKNOWN, f"`{tensor}` is in {memory}")
        touched = self.accesses(stage.name for stage in stages)
        widths = [a.width for a in touched if a.space in SPACES[memory]]
        evidence = Evidence.BINARY if widths else Evidence.UNKNOWN
        return Fact(min(widths, default=None), "bytes", evidence, self.code.sass.tool)

    def accesses(self, stages: Iterable[str]):
        selected = self.selection(*stages)
        found = (access(i) for i in executing(self.code.sass.of(self.code.kernel), selected))
        return [known for known in found if known is not None]

    def conflicts(self, tensor: str | None = None) -> Fact:
        """The worst wavefronts of a shared access over the ideal, of one tensor or of all."""
        chosen = [use for use in self.shared if tensor is None or tensor in use.tensors]
        return conflict_fact([(use, self.degree(use)) for use in chosen])

    def degree(self, use: SharedUse) -> float | None:
        """At every width that the machine code accesses it with; None where an address is unknown."""
        if use.note:
            return None
        if not use.patterns:
            return 1.0  # no lane ever runs it
        found = self.wavefronts(use)
        return found.degree if found is not None else None

    def wavefronts(self, use: SharedUse) -> Wavefronts | None:
        """The worst of an access at widths of the machine code, or else at its own; None if misaligned."""
        found = [w for width in self.widths(use) if (w := use.wavefronts(width)) is not None]
        return max(found, key=lambda w: (w.degree, w.count), default=use.wavefronts())

    def widths(self, use: SharedUse) -> Collection[int]:
        """Widths of the stage's accesses of that kind: the compiler joins those of neighbouring elements, and splits
        one only where the stage has none so wide."""
        if use.kind not in ("ld", "st") or use.stage is None:
            return (use.width,)
        lines = self.source.lines.lines(use.stage)
        selected = on_lines(lines, SOURCE_NAME)
        found = set()
        for instruction in executing(self.code.sass.of(self.code.kernel), selected):
            known = access(instruction)
            if known is not None and known.space == "shared" and KINDS.get(known.kind) == use.kind:
                found.add(known.width)
        return sorted(width for width in found if width >= use.width) or sorted(found) or (use.width,)


def conflict_fact(degrees: list[tuple[SharedUse, float | None]]) -> Fact:
    """The worst of several accesses; unknown as soon as one is."""
    open_ = next((use for use, degree in degrees if degree is None), None)
    if open_ is not None:
        note = open_.note or "addresses of lanes are no multiple of its width"
        where = f"{open_.kind} of `{open_.buffer}` in {open_.stage}"
        return Fact(None, "", Evidence.UNKNOWN, f"{where}: {note}")
    return Fact(max((degree for _, degree in degrees), default=1.0), "", Evidence.SIMULATED)


def reads_of(stage: PlannedStage) -> set[str]:
    """Tensors and views that a stage reads, under the names it reads them by."""
    if stage.stage is None:
        return {stage.source.tensor} if stage.source is not None else set()
    return {stage.renamed.get(r.tensor, r.tensor) for part in stage.unrolled for r in part.stage.reads}


def merged(facts: Iterable[Fact], choose=max) -> Fact | None:
    """One fact of several kernels: unknown if one of them is, None without any."""
    found = list(facts)
    if not found:
        return None
    unknown = next((f for f in found if f.value is None), None)
    if unknown is not None:
        return unknown
    tool = ", ".join(dict.fromkeys(f.tool for f in found if f.tool))
    return Fact(
        choose(f.value for f in found), found[0].unit, weakest(tuple(f.evidence for f in found)), tool
    )


def stage_names(kernel: KernelPlan) -> tuple[str, ...]:
    return tuple(dict.fromkeys(stage.name for stage in kernel.stages))


def unit_strides(lowering: Lowering) -> frozenset[str]:
    """Strides of last axes that a call decides: 1 in every call that is not strange."""
    ports = lowering.plan.operator.ports
    return frozenset(f"{name}_stride{len(port.shape) - 1}" for name, port in ports.items() if port.shape)


def launch_uses(lowering: Lowering, kernel: KernelPlan) -> tuple[tuple[SharedUse, ...], tuple[GlobalUse, ...]]:
    """Accesses of shared memory and of global memory by all kernels of a launch."""
    target, units = lowering.plan.target, unit_strides(lowering)
    schedules = {plan.name: made for plan, made in zip(lowering.plan.kernels, lowering.scheduled, strict=True)}
    shared, outside = [], []
    for part in lowering.plan.launched_with(kernel):
        found, beyond = memory_uses(schedules[part.name], target, stage_names(part), units)
        shared += with_tensors(found, part)
        outside += beyond
    return tuple(shared), tuple(outside)


def staged_code(lowering: Lowering) -> tuple[StagedCode, ...]:
    """Every launch of a lowered CUDA rule, compiled and taken apart. Raises ToolMissing."""
    found = []
    for kernel, source, objects in zip(lowering.plan.launches, lowering.sources, lowering.objects, strict=True):
        code = read(objects, lowering.plan.target, source.shared_bytes, source.threads[0] * source.threads[1])
        shared, outside = launch_uses(lowering, kernel)
        found.append(StagedCode(kernel, source, code, shared, outside, lowering.plan.launched_with(kernel)))
    return tuple(found)
