"""A plan as text: for `--emit plan`, for the demo's picture, for people who review a rule."""

from __future__ import annotations

from textwrap import wrap

from kdsl.plan.memory import kernel_bytes
from kdsl.plan.model import KernelPlan, Plan, PlannedStage


def plan_text(plan: Plan) -> str:
    """Kernels, homes, stages with their loops, and the schedule steps with the lines behind them."""
    lines = [f"{plan.rule.name} schedules {plan.operator.name} on {plan.target.name}", f"  {settings_text(plan)}", ""]
    for kernel in plan.kernels:
        lines += kernel_lines(plan, kernel)
        lines.append("")
    return "\n".join(lines)


def settings_text(plan: Plan) -> str:
    found = {**plan.specialization.sizes, **plan.point.choices, **plan.point.form, **plan.specialization.options}
    return ", ".join(f"{name} = {str(value).lower()}" for name, value in found.items())


def kernel_lines(plan: Plan, kernel: KernelPlan) -> list[str]:
    lines = [f"kernel {kernel.name}", "  homes"]
    for tensor in kernel.tensors.values():
        shape = ", ".join(f"{i}: {n}" for i, n in zip(tensor.indices, tensor.shape))
        lines.append(f"    {tensor.name:14} {tensor.dtype} [{shape}] in {tensor.memory} ({tensor.scope})")
    lines.append("  steps")
    lines += [f"    {step.words:72} # {step.why}, {_place(step.span)}" for step in kernel.steps]
    return lines


def _place(span) -> str:
    return f"{span.path.rsplit('/', 1)[-1]}:{span.line}"


# ---- the picture --------------------------------------------------------------------------------------------


def picture(plan: Plan) -> str:
    """The schedule as a drawing in text: grid, steps, stages with their loops, and where each tensor lives."""
    lines = [f"{plan.rule.name}: {plan.operator.name} on {plan.target.name}", *wrap(settings_text(plan), 82)]
    for kernel in plan.kernels:
        lines += _kernel_picture(plan, kernel)
    return "\n".join(lines) + "\n"


def _kernel_picture(plan: Plan, kernel: KernelPlan) -> list[str]:
    grid = "; ".join(
        f"{axis} over {', '.join(loop.text for loop in loops)}" for axis, loops in kernel.grid
    )
    width = 78
    body = [f"kernel {kernel.name}   grid {grid}"]
    body += [_stage_line(stage, kernel, "") for stage in kernel.prologue]
    indent = ""
    if kernel.sequential is not None:
        body.append(f"for {kernel.sequential} in {plan.steps_of(kernel)}")
        indent = "| "
    body += [_stage_line(stage, kernel, indent) for stage in (*kernel.body, *kernel.commits)]
    body += [_stage_line(stage, kernel, "") for stage in kernel.epilogue]
    for memory in dict.fromkeys(t.memory for t in kernel.tensors.values()):
        held = kernel_bytes(kernel, memory)
        if held:
            largest = ", ".join(f"{name} {size}" for name, size in list(held.items())[:4])
            body.append(f"{memory}: {sum(held.values())} bytes ({largest}{', ...' if len(held) > 4 else ''})")
    bar = "+" + "-" * (width + 2) + "+"
    return [bar, *(f"| {line[:width]:{width}} |" for line in body), bar]


def _stage_line(stage: PlannedStage, kernel: KernelPlan, indent: str) -> str:
    loops = next((d.values for d in kernel.decisions if (d.subject, d.key) == (stage.name, "loop_order")), None)
    names = loops if loops is not None else tuple(loop.index for loop in stage.loops if loop.kind != "scan")
    lanes = {s.loop for s in kernel.steps if s.sblock == stage.name and type(s).__name__ == "Vectorize"}
    nest = " ".join(f"{name}*" if name in lanes else name for name in names)
    scan = f"{stage.scan}> " if stage.scan is not None else ""
    home = kernel.tensors.get(stage.tensor)
    where = f"{home.dtype} {home.memory}" if home is not None else "global"
    return f"{indent}{stage.name:16} {stage.tensor:14} {scan + nest:34} {where}"
