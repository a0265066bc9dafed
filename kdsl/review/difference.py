"""Two rules, revisions or bundles compared: what the rule says, its schedule, its TIR, and its machine code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import unified_diff

from attrs import evolve, field, frozen

from kdsl.inspect.counts import counts
from kdsl.inspect.stages import StagedCode, staged_code
from kdsl.lower.lowering import Lowering
from kdsl.lower.stir.schedule import StepRefused
from kdsl.lower.toolchain.cc import CompilerFailed, ToolMissing
from kdsl.plan.refusal import PlanRefused
from kdsl.review.meaning import Change, Line, changes, meaning
from kdsl.review.subject import Subject

MEANING, SCHEDULE, TIR, CODE = "meaning", "schedule", "tir", "code"
LEVELS = (MEANING, SCHEDULE, TIR, CODE)


@frozen
class Side:
    """One of the two. Texts by kernel; a level that is missing has its reason in `absent`."""

    label: str
    meaning: tuple[Line, ...] = ()
    steps: Mapping[str, tuple[str, ...]] = field(factory=dict, repr=False)
    tir: Mapping[str, str] = field(factory=dict, repr=False)
    figures: Mapping[str, Mapping[str, float]] = field(factory=dict, repr=False)
    absent: Mapping[str, str] = field(factory=dict)


@frozen
class TextChange:
    """Lines of one kernel that changed, as a unified difference."""

    kernel: str
    added: int
    dropped: int
    lines: tuple[str, ...] = field(repr=False)


@frozen
class Figure:
    """One number of one kernel; None where a side has no such kernel."""

    kernel: str
    name: str
    old: float | None
    new: float | None


@frozen
class Difference:
    """Everything that is not the same. `absent` maps a level that was not compared to the reason."""

    rule: str
    target: str
    labels: tuple[str, str]
    meaning: tuple[Change, ...] = ()
    schedule: tuple[TextChange, ...] = ()
    tir: tuple[TextChange, ...] = ()
    figures: tuple[Figure, ...] = ()
    absent: Mapping[str, str] = field(factory=dict)
    compared: tuple[str, ...] = LEVELS

    @property
    def same(self) -> bool:
        return not (self.meaning or self.schedule or self.tir or self.figures)


# ---- sides


def side_of(subject: Subject, target: str, settings: Mapping[str, object], levels: Iterable[str]) -> Side:
    """A rule at every level asked for; a refusal ends them. Raises NotReviewable."""
    try:
        return lowered_side(subject.given, subject.lowering(target, settings), tuple(levels))
    except PlanRefused as refusal:
        reason = f"{subject.given} is refused: {refusal.diagnostic.message}"
        return Side(subject.given, absent=dict.fromkeys(levels, reason))


def lowered_side(label: str, lowering: Lowering, levels: tuple[str, ...]) -> Side:
    plan = lowering.plan
    side = Side(label, meaning(plan), {k.name: tuple(step.words for step in k.steps) for k in plan.kernels})
    if not {TIR, CODE} & set(levels):
        return side
    try:
        side = evolve(side, tir={k.function.name: k.tir for k in lowering.scheduled})
        if CODE in levels:
            side = evolve(side, figures=figures_of(lowering))
    except StepRefused as refusal:
        side = evolve(side, absent={level: str(refusal) for level in (TIR, CODE)})
    except (ToolMissing, CompilerFailed) as missing:
        side = evolve(side, absent={CODE: str(missing)})
    return side


def figures_of(lowering: Lowering) -> dict[str, dict[str, float]]:
    """Numbers of every kernel; of CPU code there are none."""
    if lowering.plan.target.family != "cuda":
        return {}
    return {one.plan.name: kernel_figures(one) for one in staged_code(lowering)}


def kernel_figures(one: StagedCode) -> dict[str, float]:
    """Resources, then instructions of the machine code by kind."""
    use, kinds = one.code.use, counts(one.code.sass, one.code.kernel)
    worst = one.conflicts().value
    found: dict[str, float] = {
        "threads": use.threads, "registers": use.registers, "spilled bytes": use.spills or 0,
        "shared bytes": use.shared, "blocks per SM": use.occupancy.blocks,
        **({"worst bank conflict": worst} if worst is not None else {}),
        "instructions": kinds.total, "shuffles": kinds.shuffles,
        "waits injected by ptxas": sum(message.waits for message in one.code.objects.warnings),
    }  # fmt: skip
    found |= kinds.matrix
    found |= {f"{name} (barrier)": number for name, number in kinds.barriers.items()}
    found |= {str(access): number for access, number in kinds.accesses.items()}
    return found


# ---- the comparison


def difference(rule: str, target: str, old: Side, new: Side, levels: Iterable[str] = LEVELS) -> Difference:
    levels = tuple(levels)
    absent = {level: reason for level in levels for side in (old, new) if (reason := side.absent.get(level))}
    compared = tuple(level for level in levels if level not in absent)
    found = Difference(rule, target, (old.label, new.label), absent=absent, compared=compared)
    if MEANING in compared:
        found = evolve(found, meaning=changes(old.meaning, new.meaning))
    if SCHEDULE in compared:
        found = evolve(found, schedule=texts_changed(joined(old.steps), joined(new.steps)))
    if TIR in compared:
        found = evolve(found, tir=texts_changed(old.tir, new.tir))
    if CODE in compared:
        found = evolve(found, figures=figures_changed(old.figures, new.figures))
    return found


def joined(steps: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    return {kernel: "\n".join(lines) for kernel, lines in steps.items()}


def texts_changed(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[TextChange, ...]:
    found = []
    for kernel in dict.fromkeys([*old, *new]):
        before, after = old.get(kernel, "").splitlines(), new.get(kernel, "").splitlines()
        lines = tuple(unified_diff(before, after, "before", "after", lineterm="", n=2))[2:]
        if lines:
            added = sum(line.startswith("+") for line in lines)
            dropped = sum(line.startswith("-") for line in lines)
            found.append(TextChange(kernel, added, dropped, dedented(lines)))
    return tuple(found)


def dedented(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Lines of a unified difference, those of each part moved left by what they are all indented."""
    found: list[str] = []
    part: list[str] = []

    def close() -> None:
        depth = min((len(line[1:]) - len(line[1:].lstrip()) for line in part if line[1:].strip()), default=0)
        found.extend(line[0] + line[1 + depth :] for line in part)
        part.clear()

    for line in lines:
        if line.startswith("@@"):
            close()
            found.append(line)
        else:
            part.append(line)
    close()
    return tuple(found)


def figures_changed(old, new) -> tuple[Figure, ...]:
    found = []
    for kernel in dict.fromkeys([*old, *new]):
        before, after = old.get(kernel, {}), new.get(kernel, {})
        for name in dict.fromkeys([*before, *after]):
            default = 0 if before and after else None
            one, other = before.get(name, default), after.get(name, default)
            if one != other:
                found.append(Figure(kernel, name, one, other))
    return tuple(found)
