"""A kernel's schedule steps performed on its TIR, and the trace that proves what was done."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import field, frozen

from kdsl.lower.stir.primitives import PRIMITIVES, Nests
from kdsl.lower.tir.kernel import KernelFunction
from kdsl.lower.tvm import Schedule, ScheduleError, Trace, assert_structural_equal, deep_copy
from kdsl.plan.model import KernelPlan
from kdsl.plan.steps import Step
from kdsl.source.diagnostic import Diagnostic
from kdsl.source.span import Span


@frozen
class StepRefused(Exception):
    """TVM refused a schedule step. `reason` is TVM's own sentence, without its listing of the program."""

    kernel: str
    step: Step | None
    reason: str

    def __str__(self) -> str:
        return self.diagnostic.message

    @property
    def diagnostic(self) -> Diagnostic:
        step = self.step
        loops = ", ".join(getattr(step, "loops", ()) or filter(None, [getattr(step, "loop", "")]))
        where = f" at loop `{loops}`" if loops else ""
        return Diagnostic(
            "T101",
            f"the schedule of kernel `{self.kernel}` is illegal: {type(step).__name__.lower()} of stage"
            f" `{step.sblock}`{where}",
            step.span,
            label=step.why,
            notes=(f"TVM: {self.reason}",),
            help=(f"change what this line asks of `{step.sblock}`, or pin another order of its loops",),
        )


@frozen
class CodeRefused(StepRefused):
    """A pass of TVM that makes code of a scheduled kernel stopped; `step` is None, `span` the kernel's line."""

    span: Span = field(repr=False)

    @property
    def diagnostic(self) -> Diagnostic:
        return Diagnostic(
            "T102", f"TVM cannot make code of kernel `{self.kernel}`", self.span, label="scheduled, not lowered",
            notes=(f"TVM: {self.reason}",),
            help=("place its tensors otherwise; the derivation should have refused this: please report it",),
        )  # fmt: skip


@contextmanager
def making_code(kernel: KernelPlan) -> Iterator[None]:
    """What TVM raises inside is a finding on the kernel's line; any other exception passes."""
    try:
        yield
    except Exception as problem:
        if type(problem).__module__.partition(".")[0] not in ("tvm", "tvm_ffi") and "Check failed" not in str(problem):
            raise
        raise CodeRefused(kernel.name, None, sentence(problem), kernel.span) from problem


@frozen
class ScheduledKernel:
    """The schedule after its steps; `trace` is TVM's own record of them."""

    function: KernelFunction
    schedule: Schedule = field(repr=False)

    @property
    def module(self):
        return self.schedule.mod

    @property
    def trace_python(self) -> str:
        return str(self.schedule.trace) + "\n"

    @property
    def trace_json(self) -> str:
        return json.dumps(plain(self.schedule.trace.as_json()), indent=1) + "\n"

    @property
    def tir(self) -> str:
        return self.module.script() + "\n"


def plain(value):
    """TVM's JSON containers as Python's."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "value"):  # TVM's integer and float constants
        return value.value
    return [plain(item) for item in value]


def fresh_schedule(function: KernelFunction) -> Schedule:
    """A schedule over a deep copy: some primitives change the function they are given in place."""
    return Schedule(deep_copy(function.func), error_render_level="fast")


def schedule_kernel(function: KernelFunction, kernel: KernelPlan) -> ScheduledKernel:
    """Perform the plan's steps. Raises StepRefused with the rule's line."""
    schedule = fresh_schedule(function)
    names = {stage.name: tuple(loop.index for loop in stage.loops if loop.kind != "scan") for stage in kernel.stages}
    names.update({stage.row_block: (stage.scan,) for stage in kernel.stages if stage.scan is not None})
    names[kernel.name] = kernel.grid_loops
    nests = Nests(schedule, names)
    for step in kernel.steps:
        try:
            PRIMITIVES[type(step)](nests, step)
        except (ScheduleError, RuntimeError, ValueError) as problem:
            raise StepRefused(kernel.name, step, sentence(problem)) from problem
    return ScheduledKernel(function, schedule)


def sentence(problem: Exception) -> str:
    """What TVM says, without its stack and its listing."""
    text = str(problem)
    found = re.search(r"(?:ScheduleError|Error message|Check failed)[^:]*:\s*(.+)", text, re.DOTALL)
    line = (found.group(1) if found else text).strip().splitlines()
    return line[0][:300].removesuffix(" is false:") if line else type(problem).__name__


def replay(function: KernelFunction, trace_json: str) -> Schedule:
    """The same function scheduled by its trace alone."""
    schedule = fresh_schedule(function)
    Trace.apply_json_to_schedule(json.loads(trace_json), schedule)
    return schedule


def replays(kernel: ScheduledKernel) -> bool:
    """Whether the trace alone gives the same TIR."""
    try:
        assert_structural_equal(replay(kernel.function, kernel.trace_json).mod, kernel.module)
    except ValueError:
        return False
    return True
