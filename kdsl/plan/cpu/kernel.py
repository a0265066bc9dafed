"""A kernel on a CPU: tasks in threads, one task after the operator's order, loops with vector lanes."""

from __future__ import annotations

from kdsl.plan.cpu.loops import grid_steps, nest
from kdsl.plan.homes import place, received
from kdsl.plan.model import KernelPlan
from kdsl.plan.order import ordered
from kdsl.plan.pins import Pins
from kdsl.plan.request import KernelRequest
from kdsl.plan.stages import kernel_stages


def plan_cpu_kernel(request: KernelRequest) -> KernelPlan:
    """Raises PlanRefused."""
    operator, graph, kernel, settings = request.operator, request.graph, request.kernel, request.settings
    pins = Pins.of(kernel, {**request.dtypes, **settings})
    tensors, decisions = place(operator, graph, kernel, "stack", settings, pins)
    stages = kernel_stages(operator, graph, kernel, "cpu", tensors, settings)
    tensors.update({copy.name: copy for copy in stages.copies})
    tensors.update(received(operator, graph, kernel, request.made))
    body, decision = ordered(stages.body, kernel.name, pins)
    decisions.append(decision)
    steps = list(grid_steps(kernel))
    everything = stages.prologue + body + stages.commits + stages.epilogue
    for stage in (inner for outer in everything for inner in outer.unrolled):
        planned = nest(stage, kernel, pins)
        steps += planned.steps
        if planned.decision is not None:
            decisions.append(planned.decision)
    pins.refuse_unused()
    return KernelPlan(
        name=kernel.name,
        parts=kernel.parts,
        grid=request.grid,
        sequential=request.sequential,
        guarded=request.guarded,
        run=request.run,
        carries=graph.carries,
        tensors=tensors,
        prologue=stages.prologue,
        body=body,
        commits=stages.commits,
        epilogue=stages.epilogue,
        steps=tuple(steps),
        decisions=tuple(decisions),
        span=kernel.span,
    )
