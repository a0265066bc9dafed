"""From a rule at a point to its plan: forms, homes, stages, order, loops. A straight line, in that order."""

from __future__ import annotations

from kdsl.check.graph import build_graph
from kdsl.check.model import Operator, RulePoint, Specialization
from kdsl.plan.cpu.kernel import plan_cpu_kernel
from kdsl.plan.cuda.kernel import plan_cuda_kernel
from kdsl.plan.model import Decision, Plan, Tensor
from kdsl.plan.request import KernelRequest

FAMILIES = {"cpu": plan_cpu_kernel, "cuda": plan_cuda_kernel}


def derive(point: RulePoint, operator: Operator, specialization: Specialization) -> Plan:
    """The plan of a rule. Raises PlanRefused with the place in the rule and the remedy."""
    settings = settings_of(point, specialization)
    graph = build_graph(operator, settings)
    made: dict[str, Tensor] = {}
    kernels = []
    for kernel in point.kernels:
        request = KernelRequest(operator, graph.of_parts(kernel.parts), kernel, point.target, settings, made,
                                specialization.dtypes)  # fmt: skip
        request.refuse_undealt()
        planned = FAMILIES[point.target.family](request)
        made.update({name: tensor for name, tensor in planned.tensors.items() if name not in made})
        kernels.append(planned)
    return Plan(point, operator, specialization, settings, graph, tuple(kernels))


def settings_of(point: RulePoint, specialization: Specialization) -> dict[str, object]:
    """Every static name with its value; a switch that the call leaves out is off."""
    settings: dict[str, object] = {**specialization.sizes, **point.choices, **point.form, **specialization.options}
    settings.update({f"target.{name}": value for name, value in point.target.fields.items()})
    return settings


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
