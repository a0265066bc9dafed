"""The contract of a lowered rule: facts from the plan, the binary, and from running it where possible.

What costs time is looked for only where a clause asks for it. A fact that cannot be known is left out with
the reason, and its clause is `unknown`, which does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import define, evolve, field, frozen

from kdsl.bundle import manifest as m
from kdsl.check.blueprint import blueprint, setting
from kdsl.contract.decide import decide
from kdsl.contract.facts import plan_facts
from kdsl.contract.predicates import Mention, argument_text, keyed
from kdsl.contract.resources import Setting
from kdsl.contract.verdict import Fact, Status, Verdict
from kdsl.driver.trial import honest_error
from kdsl.lower.lowering import Lowering
from kdsl.plan.memory import kernel_bytes
from kdsl.plan.model import Plan
from kdsl.source.diagnostic import Evidence
from kdsl.syntax import nodes as n

DRAM_NOTE = "what reaches memory depends on the caches: a profiler on a GPU measures it; move the line to `measure`"


def verdicts(lowering: Lowering, bundle: Path | None = None) -> tuple[Verdict, ...]:
    """Every clause of `ensure` and `measure`. `bundle` is the code just made: run where possible, that of a GPU on the
    emulator once all else holds."""
    found = verdicts_from(known_of(lowering, bundle), lowering.plan)
    if bundle is None or lowering.plan.target.family != "cuda" or broken(found):
        return found
    from kdsl.driver.rehearsal import rehearsed

    return (*found, *rehearsed(lowering))


def verdicts_from(known: Known, plan: Plan) -> tuple[Verdict, ...]:
    """The clauses from facts that are at hand."""
    return tuple(explained(decide(plan.point, known.facts, plan.settings), plan, known.notes))


@define
class Known:
    """Facts by key, and why those that were asked for and are missing are unknown; compiled kernels, of a GPU."""

    facts: dict[str, Fact] = field(factory=dict)
    notes: dict[str, str] = field(factory=dict)
    kernels: tuple = ()  # kdsl.inspect.stages.StagedCode

    def add(self, key: str, fact: Fact | None, scope: str = "", why: str = "") -> None:
        """`scope` is a kernel, or empty for the whole rule."""
        if fact is not None and fact.value is not None:
            self.facts[f"{scope}/{key}" if scope else key] = fact
        else:
            self.notes.setdefault(key, why or (fact.tool if fact is not None else "nothing gives it"))


def known_of(lowering: Lowering, bundle: Path | None = None) -> Known:
    """Every fact that the rule's clauses can speak of."""
    plan, asked = lowering.plan, Asked.of(lowering.plan)
    known = Known(static_facts(plan))
    if plan.target.family == "cuda":
        add_binary_facts(known, lowering, asked)
    elif bundle is not None:
        known.facts.update(error_facts(plan, bundle))
    if any(spoken.name.text == "same_algorithm" for spoken in asked.mentions):
        known.add("same_algorithm", *algorithm_fact(lowering))
    for spoken in asked.mentions:
        if spoken.name.text in ("dram_bytes", "compulsory"):
            known.notes[spoken.key] = DRAM_NOTE
    return known


# ---- what the clauses speak of


@frozen
class Asked:
    """Predicates and `uses` that stand in some clause."""

    mentions: tuple[Mention, ...]
    uses: tuple[n.Uses, ...]

    @classmethod
    def of(cls, plan: Plan) -> Asked:
        found = [clause.predicate for clause in clauses(plan)]
        mentions = {spoken.key: spoken for predicate in found for spoken in mentions_of(predicate)}
        return cls(tuple(mentions.values()), tuple(p for p in found if isinstance(p, n.Uses)))

    def arguments(self, predicate: str) -> Iterator[tuple[Mention, tuple[str, ...]]]:
        for spoken in self.mentions:
            if spoken.name.text == predicate:
                yield spoken, tuple(argument_text(argument) for argument in spoken.arguments)


def clauses(plan: Plan) -> tuple[n.Claim, ...]:
    """The clauses of `ensure`, in the order of `decide`'s verdicts."""
    return (*plan.point.ensure, *(claim for kernel in plan.point.kernels for claim in kernel.ensure))


def mentions_of(predicate: n.Node) -> list[Mention]:
    found: list[Mention] = []
    if not isinstance(predicate, (n.Uses, n.Within)):
        keyed(predicate, found)
    return found


# ---- facts


def static_facts(plan: Plan) -> dict[str, Fact]:
    """Bytes and launch sizes by arithmetic; what the plan itself keeps decides the stack of a CPU task."""
    settings = {
        name: setting(value)
        for name, value in (*plan.point.form.items(), *plan.specialization.options.items())
    }
    graph = blueprint(plan.operator).under(settings)
    known = Setting(
        plan.operator,
        graph,
        plan.settings,
        plan.specialization.dtypes,
        plan.target.family,
        plan.point.kernels,
    )
    facts, _ = plan_facts(known, plan.point.kernels)
    if plan.target.family == "cpu":
        for kernel in plan.kernels:
            facts[f"{kernel.name}/stack_bytes"] = Fact(sum(kernel_bytes(kernel, "stack").values()), "bytes")
    return facts


def add_binary_facts(known: Known, lowering: Lowering, asked: Asked) -> None:
    """Registers, spills, instructions and accesses: read from what the CUDA tools made."""
    from kdsl.inspect.facts import count_fact, injected_fact, resource_facts
    from kdsl.inspect.stages import staged_code

    kernels = known.kernels = staged_code(lowering)
    launched = [(one, part.name) for one in kernels for part in lowering.plan.launched_with(one.plan)]
    by_name = {kernel.name: kernel for kernel in lowering.plan.point.kernels}
    for one, name in launched:  # kernels of one launch have one code
        kernel = by_name[name]
        resources = resource_facts(one.code.use, one.code.objects.version)
        for key, fact in {**resources, "injected_waits": injected_fact(one.code)}.items():
            known.add(key, fact, name)
        for role in kernel.roles:
            known.add(f"registers_per_thread at {role}", resources["registers_per_thread"], name)
        for spoken, (instruction,) in asked.arguments("count"):
            fact = count_fact(one.code, instruction, spoken.level.text)
            known.add(
                spoken.key,
                fact,
                name,
                f"`{instruction}` stands for no fixed instruction at {spoken.level.text}",
            )
        if any(True for _ in asked.arguments("bank_conflicts")):
            known.add("bank_conflicts", one.conflicts(), name)
    add_stage_facts(known, kernels, asked)


def add_stage_facts(known: Known, kernels, asked: Asked) -> None:
    """Facts of stages and tensors: each kernel's own, and the worst of those with the stage or tensor."""
    from kdsl.inspect.stages import merged

    for use in asked.uses:
        for stage in use.stages:
            key = f"uses {use.instruction.text} in {stage.text}"
            found = [k.uses(use.instruction.text, stage.text) for k in kernels if k.has(stage.text)]
            known.add(
                key, merged(found, all), "", f"`{use.instruction.text}` stands for no fixed instruction"
            )
    for spoken, (work, other) in asked.arguments("overlapped"):
        found = [k.overlapped(work, other) for k in kernels if k.has(work) and k.has(other)]
        why = "" if found else f"{work} and {other} are in no kernel together"
        known.add(spoken.key, merged(found, min), "", why)
    for name, choose in (("vector_width", min), ("bank_conflicts", max)):
        for spoken, arguments in asked.arguments(name):
            if not arguments:
                continue
            (tensor,) = arguments
            having = [k for k in kernels if k.touching(tensor)]
            of_kernel = {k.plan.name: getattr(k, METHODS[name])(tensor) for k in having}
            for kernel, fact in of_kernel.items():
                known.add(spoken.key, fact, kernel)
            why = "" if having else f"no kernel touches `{tensor}`"
            known.add(spoken.key, merged(of_kernel.values(), choose), "", why)


METHODS = {"vector_width": "vector_width", "bank_conflicts": "conflicts"}


def algorithm_fact(lowering: Lowering) -> tuple[Fact | None, str, str]:
    """Whether the lowered rule is the operator, over finite fields."""
    from kdsl.prove import verdict

    holds, evidence, found, needed = verdict(lowering)
    if holds is None:
        return None, "", found or needed
    return Fact(holds, found, Evidence(evidence)), "", ""


def with_algorithm(found: tuple[Verdict, ...], lowering: Lowering) -> tuple[Verdict, ...]:
    """The verdicts with one on `same_algorithm`, which a rule need not ask for."""
    if any(verdict.clause == m.SAME_ALGORITHM and verdict.kernel is None for verdict in found):
        return found
    fact, _, why = algorithm_fact(lowering)
    span = lowering.plan.rule.declaration.name.span
    if fact is None:
        return (*found, Verdict(m.SAME_ALGORITHM, span, Status.UNKNOWN, Evidence.UNKNOWN, note=why))
    status = Status.HOLDS if fact.value else Status.FAILS
    return (*found, Verdict(m.SAME_ALGORITHM, span, status, fact.evidence, fact.unit, PROVED_EQUAL))


PROVED_EQUAL = "equal to the operator's recurrence"


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
    return plan.operator.acceptance is not None and any(
        isinstance(c.predicate, n.Within) for c in clauses(plan)
    )


# ---- verdicts


def explained(found: tuple[Verdict, ...], plan: Plan, notes: Mapping[str, str]) -> Iterator[Verdict]:
    """Unknown verdicts with the reason that was met when the fact was looked for."""
    asked = clauses(plan)
    for number, verdict in enumerate(found):
        if verdict.status is not Status.UNKNOWN or number >= len(asked):
            yield verdict
            continue
        predicate = asked[number].predicate
        keys = [spoken.key for spoken in mentions_of(predicate)]
        if isinstance(predicate, n.Uses):
            keys = [f"uses {predicate.instruction.text} in {stage.text}" for stage in predicate.stages]
        why = [notes[key] for key in keys if notes.get(key)]
        yield evolve(verdict, note=why[0]) if why else verdict


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
