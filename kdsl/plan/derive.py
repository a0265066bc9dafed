"""From a rule at a point to its plan: forms, homes, stages, order, loops. A straight line, in that order."""

from __future__ import annotations

from collections.abc import Mapping

from kdsl.check.evaluate import decide
from kdsl.check.graph import build_graph
from kdsl.check.model import Kernel, Operator, RulePoint, Specialization, names_in
from kdsl.check.sizes import conjuncts
from kdsl.plan.coverage import refuse_shared_results
from kdsl.plan.cpu.kernel import plan_cpu_kernel
from kdsl.plan.cuda.beside import handed, with_passes
from kdsl.plan.cuda.kernel import plan_cuda_kernel
from kdsl.plan.homes import rounded_name
from kdsl.plan.layout import required_layouts
from kdsl.plan.model import Plan, Tensor
from kdsl.plan.refusal import PlanRefused
from kdsl.plan.request import KernelRequest

FAMILIES = {"cpu": plan_cpu_kernel, "cuda": plan_cuda_kernel}


def derive(point: RulePoint, operator: Operator, specialization: Specialization) -> Plan:
    """The plan of a rule. Raises PlanRefused with the place in the rule and the remedy."""
    settings = settings_of(point, specialization)
    refuse_unclaimed(point, settings)
    graph = build_graph(operator, settings)
    made: dict[str, Tensor] = {}
    kernels = []
    for kernel in point.kernels:
        request = KernelRequest(operator, graph.of_parts(kernel.parts), kernel, point.target, settings, made,
                                specialization.dtypes, required_layouts(point.rule), handed(point, kernel))  # fmt: skip
        request.refuse_undealt()
        request.refuse_unordered()
        planned = FAMILIES[point.target.family](request)
        refuse_shared_results(operator, kernel, planned)
        made.update({name: tensor for name, tensor in planned.tensors.items() if name not in made})
        made.update(copies_for(kernel, planned.tensors))
        kernels.append(planned)
    registers = int(point.target.fields.get("registers_per_sm", 0))
    return Plan(point, operator, specialization, settings, graph, with_passes(kernels, registers))


def copies_for(kernel: Kernel, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rounded copies under the name of every reader that they are for; each lies in memory once."""
    return {
        f"{tensor}_for_{reader}": tensors[rounded_name(tensor, home)]
        for tensor, homes in kernel.views.items() for home in homes for reader in home.readers
        if rounded_name(tensor, home) in tensors
    }  # fmt: skip


def refuse_unclaimed(point: RulePoint, settings: dict[str, object]) -> None:
    """A rule is lowered only for calls that it takes: no clause of `require` is false for what is known here."""
    for claim in point.rule.require:
        for predicate in conjuncts(claim.predicate):
            if decide(predicate, settings) is False:
                found = ", ".join(f"{name} = {settings[name]}" for name in names_in(predicate) if name in settings)
                raise PlanRefused(
                    "R001", f"rule `{point.rule.name}` does not take this call", predicate.span,
                    observed=found or None, required=predicate.span.text,
                    help=(claim.message.value,) if claim.message else (),
                )  # fmt: skip


def settings_of(point: RulePoint, specialization: Specialization) -> dict[str, object]:
    """Every static name with its value; a switch that the call leaves out is off."""
    settings: dict[str, object] = {**specialization.sizes, **point.choices, **point.form, **specialization.options}
    settings.update({f"target.{name}": value for name, value in point.target.fields.items()})
    return settings


SIDE_BY_SIDE = 70  # characters of a pin line that leave room for the reason beside it


def decisions_text(plan: Plan) -> str:
    """Every derived choice as `pin` blocks, one for each kernel, to be put into that kernel of the rule."""
    blocks = []
    for kernel in plan.kernels:
        lines = [f"  # kernel {kernel.name}", "  pin {"]
        width = max((len(d.line) for d in kernel.decisions if len(d.line) <= SIDE_BY_SIDE), default=0)
        for decision in kernel.decisions:
            if len(decision.line) <= SIDE_BY_SIDE:
                lines.append(f"    {decision.line:{width}}  # {decision.why}")
            else:
                lines += [f"    # {decision.why}", f"    {decision.line}"]
        blocks.append("\n".join([*lines, "  }"]))
    return "\n".join(blocks) + "\n"
