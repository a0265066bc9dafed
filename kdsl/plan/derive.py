"""From a rule at a point to its plan: forms, homes, stages, order, loops. A straight line, in that order."""

from __future__ import annotations

from collections.abc import Mapping

from kdsl.check.graph import build_graph
from kdsl.check.model import Graph, Kernel, Operator, RulePoint, Specialization
from kdsl.plan.homes import place, received
from kdsl.plan.loops import grid_steps, nest
from kdsl.plan.model import Decision, KernelPlan, Plan, Tensor
from kdsl.plan.order import ordered
from kdsl.plan.pins import Pins
from kdsl.plan.refusal import PlanRefused
from kdsl.plan.stages import kernel_stages


def derive(point: RulePoint, operator: Operator, specialization: Specialization) -> Plan:
    """The plan of a rule. Raises PlanRefused with the place in the rule and the remedy."""
    settings = settings_of(point, specialization)
    graph = build_graph(operator, settings)
    made: dict[str, Tensor] = {}
    kernels = []
    for kernel in point.kernels:
        planned = derive_kernel(operator, graph.of_parts(kernel.parts), kernel, point.target.family, settings, made)
        made.update({name: tensor for name, tensor in planned.tensors.items() if name not in made})
        kernels.append(planned)
    return Plan(point, operator, specialization, settings, graph, tuple(kernels))


def settings_of(point: RulePoint, specialization: Specialization) -> dict[str, object]:
    """Every static name with its value; a switch that the call leaves out is off."""
    settings: dict[str, object] = {**specialization.sizes, **point.choices, **point.form, **specialization.options}
    settings.update({f"target.{name}": value for name, value in point.target.fields.items()})
    return settings


def derive_kernel(
    operator: Operator,
    graph: Graph,
    kernel: Kernel,
    family: str,
    settings: Mapping[str, object],
    made: Mapping[str, Tensor],
) -> KernelPlan:
    """One kernel; `made` are the tensors of the kernels before it."""
    pins = Pins.of(kernel)
    tensors, decisions = place(operator, graph, kernel, family, settings, pins)
    stages = kernel_stages(operator, graph, kernel, tensors, settings)
    tensors.update({copy.name: copy for copy in stages.copies})
    tensors.update(received(operator, graph, kernel, made))
    body, decision = ordered(stages.body, kernel.name, pins)
    decisions.append(decision)
    steps = list(grid_steps(kernel))
    for stage in stages.prologue + body + stages.commits + stages.epilogue:
        planned = nest(stage, kernel, pins)
        steps += planned.steps
        if planned.decision is not None:
            decisions.append(planned.decision)
    pins.refuse_unused()
    return KernelPlan(
        name=kernel.name,
        parts=kernel.parts,
        grid=tuple((axis.axis, tuple(index for index, _ in axis.indices)) for axis in kernel.grid),
        sequential=_sequential(operator, graph, kernel),
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


def _sequential(operator: Operator, graph: Graph, kernel: Kernel) -> str | None:
    """The index the kernel steps through: what its carries run over, or the one left outside the grid."""
    over = {carry.over for carry in graph.carries}
    if len(over) > 1:
        raise PlanRefused("E137", f"kernel `{kernel.name}` carries over {' and '.join(sorted(over))}", kernel.span)
    if over:
        return over.pop()
    taken = {index for axis in kernel.grid for index, _ in axis.indices}
    left = [name for name, index in operator.indices.items() if index.mode == "sequential" and name not in taken]
    return left[0] if left else None


def decisions_text(plan: Plan) -> str:
    """Every derived choice as `pin` blocks, one for each kernel, to be put into that kernel of the rule."""
    blocks = []
    for kernel in plan.kernels:
        lines = [f"  # kernel {kernel.name}", "  pin {"]
        width = max((len(_line(d)) for d in kernel.decisions), default=0)
        lines += [f"    {_line(d):{width}}  # {d.why}" for d in kernel.decisions]
        blocks.append("\n".join([*lines, "  }"]))
    return "\n".join(blocks) + "\n"


def _line(decision: Decision) -> str:
    return decision.line
