"""CUDA rules for a proof with a fiber for each thread: their texts, and the rule's lines behind those of a text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import evolve

from kdsl.bundle.expression import parse_number
from kdsl.check.model import DTYPE_BYTES
from kdsl.driver.package import grid_blocks, workspaces
from kdsl.emulate.findings import Finding
from kdsl.lower.lowering import Lowering
from kdsl.prove.cases import asked, cases_of, situation
from kdsl.prove.device import DeviceProgram, Kernel
from kdsl.prove.lowered import further_cases, name_of, pins_of, scheduled_functions, stage_span, unknown
from kdsl.prove.program import Program
from kdsl.prove.proof import Difference, Proof
from kdsl.prove.refusal import NoMeaning
from kdsl.prove.threads import Subject, difference_of, prove_threads


def device_program(lowering: Lowering) -> DeviceProgram:
    """The texts that TVM generates for a CUDA rule."""
    plan = lowering.plan
    kernels = []
    for kernel, source in zip(plan.launches, lowering.sources, strict=True):
        grid = {axis: parse_number(text) for axis, text in grid_blocks(plan, kernel).items()}
        kernels.append(
            Kernel(
                kernel.name,
                source.source,
                source.symbol,
                (*source.threads, 1, 1)[:3],
                source.shared_bytes,
                source.arguments,
                lambda sizes, grid=grid: tuple(int(grid[axis].evaluate(sizes)) for axis in "xyz"),
            )
        )
    spaces = [(s.name, s.dtype, parse_number(s.bytes)) for s in workspaces(plan)]
    return DeviceProgram(
        tuple(kernels),
        plan.specialization.dtypes,
        plan.target.name,
        lambda sizes: {n: (d, int(b.evaluate(sizes)) // DTYPE_BYTES[d]) for n, d, b in spaces},
    )


def prove_rule_threads(
    lowering: Lowering,
    shape: Mapping[str, int] | None = None,
    trials: int | None = None,
    *,
    seed: int | None = None,
    progress: Callable[[str], None] | None = None,
    program: DeviceProgram | None = None,
) -> Proof:
    """Prove the device texts of a lowered CUDA rule equal to its operator's recurrence, thread by thread.

    `program` stands for those texts (an edited one, in a test). Raises what lowering raises; any other outcome is a
    Proof.
    """
    plan = lowering.apart.plan  # kernels of one launch, each by itself, say what the text asks of a call
    functions, options = scheduled_functions(lowering.apart), plan.specialization.options
    try:
        required = Program.of(functions, pins_of(plan)).strides
        cases = asked(plan.operator, plan.settings, shape) if shape else cases_of(plan.operator, plan.settings)
        if not shape:
            cases = (*cases, *further_cases(plan, functions, cases))
    except NoMeaning as obstacle:
        return unknown(plan, obstacle)
    calls = tuple((case, situation(plan.operator, case, plan.settings, options, required)) for case in cases)
    subject = Subject(name_of(plan), program or device_program(lowering), calls)
    return prove_threads(
        subject, trials=trials, seed=seed, progress=progress, at_line=lambda finding: _at_line(lowering, finding)
    )


def _at_line(lowering: Lowering, finding: Finding) -> Difference:
    """The finding at the line of the rule whose stage the line of the text belongs to."""
    stage = None
    for source in lowering.sources:
        if source.symbol == finding.kernel and finding.line is not None:
            stage = source.lines.stage_of(finding.line)
    return evolve(difference_of(finding), stage=stage, span=stage_span(lowering.plan, stage))
