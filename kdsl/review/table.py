"""Rules against targets: what every clause says on each, and what the machine code takes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from attrs import field, frozen

from kdsl.bundle.write import write_bundle
from kdsl.contract.verdict import Status, Verdict
from kdsl.driver.compile import content_key
from kdsl.driver.contract import known_of, verdicts_from
from kdsl.driver.package import manifest_of, variant_files
from kdsl.driver.rehearsal import rehearsed
from kdsl.inspect.counts import counts
from kdsl.inspect.stages import StagedCode
from kdsl.lower.lowering import Lowering
from kdsl.lower.stir.schedule import StepRefused
from kdsl.plan.listing import settings_text
from kdsl.plan.refusal import PlanRefused
from kdsl.review.subject import Subject

RESOURCES = (
    "rule", "target", "kernel", "threads", "registers", "spilled bytes", "shared bytes", "blocks per SM", "limit",
    "worst conflict", "matrix", "instructions", "ptxas says",
)  # fmt: skip

LEGEND = (
    "A cell is what was found where the clause holds; `pending` waits for `kdsl validate` on a GPU. Evidence: proved "
    "by arithmetic, binary from ptxas and SASS, simulated by the model of the memory banks or on the emulator, "
    "measured on the machine."
)


@frozen
class Row:
    """What one kernel takes on one target, as texts under RESOURCES."""

    cells: tuple[str, ...]


@frozen
class Outcome:
    """One rule on one target: its verdicts and its kernels' resources, or why there are none."""

    rule: str
    target: str
    settings: str
    verdicts: tuple[Verdict, ...] = ()
    rows: tuple[Row, ...] = ()
    refusal: str = ""

    @property
    def good(self) -> bool:
        return not self.refusal and all(v.status in (Status.HOLDS, Status.PENDING) for v in self.verdicts)


@frozen
class Table:
    outcomes: tuple[Outcome, ...]
    tools: tuple[str, ...] = field(factory=tuple)

    @property
    def good(self) -> bool:
        return all(outcome.good for outcome in self.outcomes)


def outcomes(subjects: Iterable[Subject], targets: Iterable[str] | None) -> Iterator[Outcome]:
    """Every rule on every target that it names, at its default choices. Raises ToolMissing."""
    wanted = tuple(targets) if targets is not None else None
    for subject in subjects:
        for target in subject.rule.targets:
            if wanted is None or target in wanted:
                yield outcome(subject, target)


def outcome(subject: Subject, target: str) -> Outcome:
    try:
        lowering = subject.lowering(target)
        settings = settings_text(lowering.plan)
        if target == "cpu":
            return Outcome(subject.rule.name, target, settings, run_verdicts(lowering))
        known = known_of(lowering)
        found = (*verdicts_from(known, lowering.plan), *rehearsed(lowering))
        rows = tuple(row(subject.rule.name, target, one) for one in known.kernels)
        return Outcome(subject.rule.name, target, settings, found, rows)
    except (PlanRefused, StepRefused) as refusal:
        return Outcome(subject.rule.name, target, "", refusal=str(refusal.diagnostic.message))


def run_verdicts(lowering: Lowering) -> tuple[Verdict, ...]:
    """With the code run on this machine, as lowering does before it writes a bundle."""
    variant, files = variant_files(lowering, content_key(lowering.plan))
    with tempfile.TemporaryDirectory(prefix="kdsl-") as folder:
        trial = write_bundle(Path(folder) / "trial.kdsb", manifest_of((lowering.plan,), (variant,)), files)
        return verdicts_from(known_of(lowering, trial), lowering.plan)


def row(rule: str, target: str, one: StagedCode) -> Row:
    use, held = one.code.use, one.code.use.occupancy
    worst = one.conflicts()
    kinds = counts(one.code.sass, one.code.kernel)
    matrix = ", ".join(f"{number} {name}" for name, number in kinds.matrix.items()) or "none"
    said = "; ".join(dict.fromkeys(str(message) for message in one.code.objects.warnings)) or "nothing"
    return Row((
        rule, target, one.plan.name, str(use.threads), str(use.registers), str(use.spills), str(use.shared),
        str(held.blocks), ", ".join(held.limited_by), f"{worst.value:g}" if worst.value is not None else "unknown",
        matrix, str(kinds.total), said,
    ))  # fmt: skip


# ---- Markdown


def markdown(table: Table) -> str:
    """Two tables: clauses of every rule by target, then resources of every kernel."""
    parts = ["## Verdicts", "", LEGEND, ""]
    for rule in dict.fromkeys(outcome.rule for outcome in table.outcomes):
        parts += [f"### `{rule}`", "", *clause_table([o for o in table.outcomes if o.rule == rule]), ""]
    rows = [row.cells for outcome in table.outcomes for row in outcome.rows]
    if rows:
        parts += ["## Resources", "", *grid(RESOURCES, rows), ""]
    if table.tools:
        parts += ["Made with " + "; ".join(table.tools) + ".", ""]
    return "\n".join(parts)


def clause_table(found: list[Outcome]) -> Iterator[str]:
    """Clauses down, targets across."""
    clauses = dict.fromkeys((v.kernel, v.clause) for outcome in found for v in outcome.verdicts)
    heads = ("clause", "evidence", *(outcome.target for outcome in found))
    rows = []
    for kernel, clause in clauses:
        verdicts = [
            next((v for v in outcome.verdicts if (v.kernel, v.clause) == (kernel, clause)), None) for outcome in found
        ]
        named = f"`{kernel}: {clause}`" if kernel else f"`{clause}`"
        known = dict.fromkeys(v.evidence.value for v in verdicts if v is not None and v.status is not Status.PENDING)
        rows.append((named, ", ".join(known), *(cell(v) if v is not None else "" for v in verdicts)))
    yield from grid(heads, rows)
    yield from (f"\n{o.target}: refused: {o.refusal}" for o in found if o.refusal)
    yield from (f"\nSettings: {text}." for text in dict.fromkeys(o.settings for o in found if o.settings))


def cell(verdict: Verdict) -> str:
    """What was found where the clause holds; what is wrong where it does not."""
    if verdict.status is Status.HOLDS:
        return verdict.found or "holds"
    if verdict.status is Status.FAILS:
        return f"**fails**: {verdict.found}"
    return f"**unknown**: {verdict.note}" if verdict.status is Status.UNKNOWN else "pending"


def grid(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """A Markdown table."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return [*lines, *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)]
