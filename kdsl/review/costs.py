"""Instructions that cost more than they must, each with its stage, its lines and the tensor it touches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from attrs import field, frozen

from kdsl.inspect.listing import Instruction, executing
from kdsl.inspect.memory import Access, access
from kdsl.inspect.shared import SharedUse
from kdsl.inspect.stages import StagedCode
from kdsl.lower.toolchain.nvcc import SOURCE_NAME
from kdsl.plan.model import KernelPlan, PlannedStage
from kdsl.source.span import Span

CONFLICT, SPILL, LOCAL, SCATTERED, NARROW = (
    "bank conflict", "spill", "local array", "uncoalesced access", "narrow access",
)  # fmt: skip
KINDS_IN_ORDER = (SPILL, CONFLICT, SCATTERED, LOCAL, NARROW)
NARROW_BYTES = 4  # a warp of lanes that move fewer asks for less than 128 bytes at once
OPCODES = {"ld": ("LDS",), "st": ("STS",), "ldmatrix": ("LDSM",), "stmatrix": ("STSM",), "cp.async": ("LDGSTS",)}
VERBS = {"ld": "reads", "ldmatrix": "reads", "st": "writes", "stmatrix": "writes", "cp.async": "copies into"}


@frozen
class Cost:
    """`stage` is the sblock in the TIR; `tensor` what it touches; `weight` says how much is lost, to sort by.

    `lines` are those of the CUDA; `spans` of the rule, its tactics and the operator, the nearest first.
    """

    kind: str
    kernel: str
    stage: str | None
    tensor: str
    note: str
    instructions: tuple[tuple[str, int], ...]
    lines: tuple[int, ...] = field(repr=False, default=())
    spans: tuple[tuple[str, Span], ...] = field(repr=False, eq=False, default=())
    weight: float = 0.0

    @property
    def count(self) -> int:
        return sum(number for _, number in self.instructions)


def costs(one: StagedCode, narrow: int = NARROW_BYTES) -> tuple[Cost, ...]:
    """Every costly instruction of a kernel, grouped by stage and tensor, the worst kinds first."""
    found = [*conflicts(one), *scattered(one), *by_instruction(one, narrow)]
    order = {kind: number for number, kind in enumerate(KINDS_IN_ORDER)}
    return tuple(sorted(found, key=lambda cost: (order[cost.kind], -cost.weight, -cost.count, cost.stage or "")))


def conflicts(one: StagedCode) -> Iterator[Cost]:
    """Shared accesses that take more wavefronts than their words need."""
    worst: dict[tuple, tuple] = {}
    for use in one.shared:
        fronts = one.wavefronts(use) if use.patterns else None
        if fronts is None or fronts.excess <= 0:
            continue
        key = use.stage, use.kind, use.tensors
        if key not in worst or fronts.degree > worst[key][1].degree:
            worst[key] = (use, fronts)
    for use, fronts in worst.values():
        note = f"{VERBS[use.kind]} `{', '.join(use.tensors)}`: {fronts.count} wavefronts where {fronts.ideal} suffice"
        yield cost_of(one, CONFLICT, use.stage, use.tensors[0], note, touching(one, use), fronts.degree)


def touching(one: StagedCode, use: SharedUse) -> list[Instruction]:
    """The instructions of an access's stage of its kind."""
    code = executing(one.code.sass.of(one.code.kernel))
    return [i for i in code if i.opcode in OPCODES[use.kind] and one.stage_of(i) == use.stage]


def scattered(one: StagedCode) -> Iterator[Cost]:
    """Global accesses that move twice the sectors that hold what they ask for, or more."""
    for use in dict.fromkeys(one.outside):
        moved, needed = use.sectors()
        if moved < 2 * needed:
            continue
        verb = "reads" if use.kind == "ld" else "writes"
        note = f"{verb} `{use.buffer}`: a warp moves {moved} sectors of 32 bytes where {needed} hold what it asks for"
        opcode = "LDG" if use.kind == "ld" else "STG"
        code = executing(one.code.sass.of(one.code.kernel))
        found = [i for i in code if i.opcode == opcode and one.stage_of(i) == use.stage]
        yield cost_of(one, SCATTERED, use.stage, use.buffer, note, found, moved / needed)


def by_instruction(one: StagedCode, narrow: int) -> Iterator[Cost]:
    """Spills, local arrays and narrow global accesses, as the machine code has them."""
    found: dict[tuple, list[Instruction]] = {}
    for instruction in executing(one.code.sass.of(one.code.kernel)):
        touched = access(instruction)
        known = named(touched, bool(one.code.use.spills), narrow) if touched is not None else None
        if known is not None:
            found.setdefault((*known, one.stage_of(instruction)), []).append(instruction)
    for (kind, note, stage), instructions in found.items():
        yield cost_of(one, kind, stage, "", note, instructions, float(len(instructions)))


def named(touched: Access, spills: bool, narrow: int) -> tuple[str, str] | None:
    if touched.space == "local":
        return (SPILL, "registers are short") if spills else (LOCAL, "an array is indexed by a computed value")
    if touched.space == "global" and touched.kind in ("load", "store") and touched.width < narrow:
        return NARROW, f"{touched.kind}s of {touched.width} bytes a lane"
    return None


def cost_of(one: StagedCode, kind, stage, tensor, note, instructions: Iterable[Instruction], weight) -> Cost:
    instructions = list(instructions)
    names = Counter(i.name for i in instructions).most_common()
    inside = one.source.lines.lines(stage) if stage is not None else None
    lines = {
        p.line for i in instructions for p in i.places if p.file == SOURCE_NAME and (inside is None or p.line in inside)
    }
    spans = tuple(spans_of(one.plan_with(stage, tensor), stage, tensor))
    return Cost(kind, one.plan.name, stage, tensor, note, tuple(names), tuple(sorted(lines)), spans, weight)


def spans_of(kernel: KernelPlan, stage: str | None, tensor: str) -> Iterator[tuple[str, Span]]:
    """Where the rule places the tensor, how it computes the stage, and the stage in the operator; each line once."""
    found: list[tuple[str, Span]] = []
    if tensor in kernel.tensors:
        found.append(("placed", kernel.tensors[tensor].span))
    planned = stage_named(kernel, stage)
    if planned is not None:
        own = planned.span
        steps = (step.span for step in reversed(kernel.steps) if step.sblock == planned.name)
        last = next(steps, own)
        found += [("computed", last)] if (last.path, last.line) != (own.path, own.line) else []
        found.append(("stage", own))
    seen = set()
    for what, span in found:
        if (span.path, span.line) not in seen:
            seen.add((span.path, span.line))
            yield what, span


def stage_named(kernel: KernelPlan, name: str | None) -> PlannedStage | None:
    return next((s for s in kernel.stages if s.name == name), None)
