"""The report on a lowered rule: what it keeps where, what it rounds, what its contract says, what made it."""

from __future__ import annotations

from kdsl.driver.contract import verdicts
from kdsl.driver.versions import tool_lines
from kdsl.lower.lowering import Lowering
from kdsl.plan.listing import settings_text
from kdsl.plan.memory import kernel_bytes
from kdsl.plan.model import Plan


def report_text(lowering: Lowering) -> str:
    plan = lowering.plan
    lines = [f"rule      {plan.rule.name}", f"operator  {plan.operator.name}", f"target    {plan.target.name}",
             f"settings  {settings_text(plan)}", 
             "dtypes    " + ", ".join(f"{n} {d}" for n, d in plan.specialization.dtypes.items())]  # fmt: skip
    for kernel in plan.kernels:
        lines += ["", f"kernel {kernel.name}: {len(kernel.stages)} sblocks, {len(kernel.steps)} schedule steps"]
        for memory in dict.fromkeys(t.memory for t in kernel.tensors.values() if t.scope != "call"):
            held = kernel_bytes(kernel, memory)
            lines.append(f"  {memory:10} {sum(held.values())} bytes: " + ", ".join(f"{n} {b}" for n, b in held.items()))
    lines += launch_lines(plan)
    lines += ["", "roundings"]
    lines += [f"  {line}" for line in roundings(plan)] or ["  none: every tensor is f32"]
    lines += ["", "contract"]
    for verdict in verdicts(lowering):
        lines.append(f"  {verdict.clause}: {verdict.told}{_numbers(verdict)}")
    return "\n".join([*lines, "", "made with", *(f"  {line}" for line in tool_lines(plan.target))]) + "\n"


def launch_lines(plan: Plan) -> list[str]:
    """A line for each launch of several kernels."""
    found = []
    for kernel in plan.launches:
        parts = [part for part in plan.launched_with(kernel) if part is not kernel]
        for part in parts:
            groups = next(iter(part.passes.values())).ring
            found += ["", f"launch {kernel.name}: {kernel.threads[1]} warps of {kernel.name} beside {groups} groups of "
                          f"{part.threads[1]} of {part.name}, which pass {', '.join(part.passes)}"]  # fmt: skip
            if kernel.registers is not None:
                found.append(f"  registers  {kernel.registers} and {part.registers} a thread")
    return found


def _numbers(verdict) -> str:
    """What was found and needed, or why nothing decided it."""
    parts = [f"found {verdict.found}"] if verdict.found else []
    parts += [f"needed {verdict.needed}"] if verdict.needed and verdict.found else []
    parts += [verdict.note] if verdict.note else []
    return ", " + ", ".join(parts) if parts else ""


def roundings(plan: Plan) -> list[str]:
    """Every tensor that the rule narrows below f32, with the kernel: the only changes of a value in a rule."""
    return [
        f"{t.name} in kernel {kernel.name}: {t.dtype}, {t.memory}"
        for kernel in plan.kernels
        for t in kernel.tensors.values()
        if t.dtype != "f32"
    ]
