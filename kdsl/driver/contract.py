"""The contract of a lowered rule: facts from the plan, from the binary, and from running it where that is possible."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kdsl.bundle import manifest as m
from kdsl.check.blueprint import blueprint, setting
from kdsl.check.model import walk
from kdsl.contract.decide import decide
from kdsl.contract.facts import plan_facts
from kdsl.contract.resources import Setting
from kdsl.contract.verdict import Fact, Status, Verdict
from kdsl.driver.trial import honest_error
from kdsl.lower.lowering import Lowering
from kdsl.plan.memory import kernel_bytes
from kdsl.plan.model import Plan
from kdsl.source.diagnostic import Evidence
from kdsl.syntax import nodes as n


def verdicts(lowering: Lowering, bundle: Path | None = None) -> tuple[Verdict, ...]:
    """Every clause of `ensure` and `measure`. `bundle` is the code just made: it is run where this machine can."""
    plan = lowering.plan
    facts = {**static_facts(plan), **binary_facts(lowering)}
    if bundle is not None and plan.target.family == "cpu":
        facts.update(error_facts(plan, bundle))
    return decide(plan.point, facts, plan.settings)


def static_facts(plan: Plan) -> dict[str, Fact]:
    """Bytes and launch sizes by arithmetic; what the plan itself keeps decides the stack of a CPU task."""
    settings = {name: setting(value) for name, value in (*plan.point.form.items(), *plan.specialization.options.items())}
    graph = blueprint(plan.operator).under(settings)
    known = Setting(
        plan.operator, graph, plan.settings, plan.specialization.dtypes, plan.target.family, plan.point.kernels
    )
    facts, _ = plan_facts(known, plan.point.kernels)
    if plan.target.family == "cpu":
        for kernel in plan.kernels:
            facts[f"{kernel.name}/stack_bytes"] = Fact(sum(kernel_bytes(kernel, "stack").values()), "bytes")
    return facts


def binary_facts(lowering: Lowering) -> dict[str, Fact]:
    """Registers, spills, instructions: read from what the CUDA tools made."""
    if lowering.plan.target.family != "cuda":
        return {}
    from kdsl.inspect.facts import facts

    found: dict[str, Fact] = {}
    counted = counts_asked_for(lowering.plan)
    for kernel, source, objects in zip(lowering.plan.kernels, lowering.sources, lowering.objects):
        threads = source.threads[0] * source.threads[1]
        for key, fact in facts(objects, lowering.plan.target, source.shared_bytes, threads, counted=counted).items():
            found[f"{kernel.name}/{key}"] = fact
    return found


def counts_asked_for(plan: Plan) -> set[tuple[str, str]]:
    """Instructions whose number a clause speaks of, with the level: (shfl.sync, ptx)."""
    claims = (*plan.point.ensure, *(claim for kernel in plan.point.kernels for claim in kernel.ensure))
    return {
        (node.subject.arguments[0].text, node.level.text)
        for claim in claims
        for node in walk(claim.predicate)
        if isinstance(node, n.AtLevel) and isinstance(node.subject, n.Call) and node.subject.function.text == "count"
    }


def error_facts(plan: Plan, bundle: Path) -> Mapping[str, Fact]:
    """Whether the code stays within the operator's acceptance, on inputs that it has not seen."""
    if not asks_for_error(plan):
        return {}
    result = honest_error(plan, bundle)
    if result is None:
        return {}
    key = f"error within {plan.operator.acceptance.name.text}"
    return {key: Fact(result.accepted, result.found, Evidence.MEASURED, "this machine, float64 oracle")}


def asks_for_error(plan: Plan) -> bool:
    claims = (*plan.point.ensure, *(claim for kernel in plan.point.kernels for claim in kernel.ensure))
    return plan.operator.acceptance is not None and any(isinstance(claim.predicate, n.Within) for claim in claims)


def record(verdict: Verdict) -> m.Verdict:
    """The verdict as a bundle's manifest keeps it."""
    return m.Verdict(
        clause=f"{verdict.kernel}: {verdict.clause}" if verdict.kernel else verdict.clause,
        verdict=verdict.status.value,
        evidence=verdict.evidence.value,
        found=verdict.found or None,
        needed=verdict.needed or None,
    )


def broken(found: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """Clauses that keep a bundle from being written: unknown does not hold."""
    return tuple(verdict for verdict in found if verdict.status not in (Status.HOLDS, Status.PENDING))
