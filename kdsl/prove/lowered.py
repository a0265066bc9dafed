"""The proof of a lowered rule: its scheduled TIR against the operator's recurrence."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product

from attrs import evolve

from kdsl.check.library import load
from kdsl.lower.lowering import Lowering
from kdsl.lower.tir.launch_order import RANK, RANKED
from kdsl.lower.tvm import Call as TvmCall
from kdsl.lower.tvm import structural_map
from kdsl.plan.derive import derive
from kdsl.plan.model import Plan
from kdsl.plan.refusal import PlanRefused
from kdsl.prove import objects
from kdsl.prove.cases import MOST, MOST_OTHER, Case, asked, cases_of, past, tried
from kdsl.prove.locate import located
from kdsl.prove.memory import hint, hint_of, hinted, recalled, remember
from kdsl.prove.program import SHARED, Function, Program, runtime
from kdsl.prove.proof import UNKNOWN, Proof
from kdsl.prove.prover import Failure, Subject, prove_subject
from kdsl.prove.recurrence import MEANINGS, Call, port_levels
from kdsl.prove.refusal import NoMeaning
from kdsl.prove.specification import meaning_of
from kdsl.prove.thresholds import beyond, thresholds
from kdsl.source.span import Span

LINKED = "kernels of one launch are proved one after the other; `kdsl prove --threads` runs them side by side"


def scheduled_functions(lowering: Lowering) -> list[Function]:
    """The kernels after scheduling, binding and tensorization: where the proof is made."""
    return [Function(k.function.name, _only(k.module), k.function.arguments) for k in lowering.scheduled]


def as_scheduled(lowering: Lowering) -> Iterator[Function]:
    """As `scheduled_functions`, each as soon as it is there."""
    for k in lowering.as_scheduled():
        yield Function(k.function.name, _only(k.module), k.function.arguments)


def plain_functions(lowering: Lowering) -> list[Function]:
    """The kernels before any schedule step: the operator's graph as TIR, one sblock a stage."""
    return [Function(f.name, f.func, f.arguments, plain=True) for f in lowering.functions]


def _only(module):
    (func,) = module.functions.values()
    return in_any_order(func)


def in_any_order(func):
    """The kernel with the blocks of a launch axis in the order of its index, which is one of all orders."""

    def first(call):
        name = str(getattr(call.args[0], "value", "")) if len(call.args) else ""
        return call.args[RANK] if name == RANKED else call

    return func.with_body(structural_map(func.body, (TvmCall, first)))


def pins_of(plan: Plan) -> dict[str, int]:
    return port_levels(Call(meaning_of(plan.operator), {}, plan.specialization.options, frozenset()))


def name_of(plan: Plan) -> str:
    """Rule, target and the choices that are not the default ones."""
    choices = [f"{k} = {v}" for k, v in plan.point.choices.items()]
    return f"{plan.rule.name} on {plan.target.name}" + (f" at {', '.join(choices)}" if choices else "")


def prove(
    lowering: Lowering,
    shape: Mapping[str, int] | None = None,
    trials: int | None = None,
    *,
    seed: int | None = None,
    scheduled: bool = True,
    fresh: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Proof:
    """Prove a lowered rule equal to its operator's recurrence.

    `shape` fixes sizes of the calls that are tried (T, H, HV, ...), by default `cases.py` chooses them;
    `trials` is derived from the bound of 1e-18 unless given; `scheduled=False` proves the operator's graph
    in place of the schedule; an equal program that was proved before is not run again unless `fresh` or a
    `seed` asks for it. Raises what lowering raises (StepRefused, ToolMissing, CompilerFailed); any other
    outcome is a Proof.
    """
    if lowering.apart is not lowering:
        found = prove(lowering.apart, shape, trials, seed=seed, scheduled=scheduled, fresh=fresh, progress=progress)
        return evolve(found, assumptions=(*found.assumptions, LINKED))
    plan = lowering.plan
    name = name_of(plan)
    if meaning_of(plan.operator) is None:
        return Proof(
            UNKNOWN,
            name,
            obstacle=f"operator {plan.operator.name} has no specification",
            remedy=f"give it the last name and the ports of one that has: {', '.join(MEANINGS)}",
        )
    cases = asked(plan.operator, plan.settings, shape) if shape else cases_of(plan.operator, plan.settings)
    options = {"trials": trials, "seed": seed, "progress": progress, "fresh": fresh, "further": not shape}
    if not scheduled:
        return prove_functions(plan, plain_functions(lowering), cases, **options)
    key = hint_of(name, plan, cases, trials)
    compiled = fresh or seed is not None or not hinted(key)  # while the next kernel is scheduled
    if compiled:
        objects.begin(runtime(), objects.HEAVY)
    try:
        proof = prove_functions(
            plan,
            as_scheduled(lowering),
            cases,
            names={a.name for f in lowering.functions for a in f.arguments if a.kind in SHARED},
            made=objects.begin if compiled else None,
            **options,
        )
    finally:
        objects.forget()
    if proof.proved:
        hint(key)
    return proof


def unknown(plan: Plan, obstacle: NoMeaning) -> Proof:
    """The verdict on a program with an expression that has no meaning."""
    return Proof(
        UNKNOWN,
        name_of(plan),
        obstacle=str(obstacle),
        remedy=obstacle.remedy,
        obstacle_span=stage_span(plan, obstacle.stage),
    )


def prove_functions(
    plan: Plan,
    functions: Iterable[Function],
    cases: tuple[Case, ...],
    *,
    trials: int | None = None,
    seed: int | None = None,
    progress: Callable[[str], None] | None = None,
    fresh: bool = False,
    further: bool = True,
    names: Collection[str] | None = None,
    made: Callable[[str], None] | None = None,
) -> Proof:
    """As `prove`, for kernels that stand for those of the plan (a mutant, a program made by hand); `further` adds
    calls past the sizes that the program tells apart; `names` and `made` as in `Program.of`."""
    name = name_of(plan)
    try:
        program = Program.of(functions, pins_of(plan), names=names, made=made)
        if further:
            cases = (*cases, *further_cases(plan, program.functions, cases))
    except NoMeaning as obstacle:
        return unknown(plan, obstacle)
    subject = Subject(name, plan.operator, plan.settings, plan.specialization.options, program, cases)

    known = None if fresh or seed is not None else recalled(subject, trials)
    if known is not None:
        return known

    def locate(failure: Failure):
        return located(plan, subject, failure, references(plan))

    proof = prove_subject(subject, trials=trials, seed=seed, progress=progress, locate=locate)
    remember(subject, trials, proof)
    return proof


def further_cases(plan: Plan, functions: Sequence[Function], cases: tuple[Case, ...]) -> Iterator[Case]:
    """A call past each size that the program tells apart. Raises NoMeaning where that is too large a call."""
    found = thresholds(functions, plan.operator.sizes)
    for size, threshold in beyond(found, tried(cases)).items():
        most = MOST.get(size, MOST_OTHER)
        if threshold.value > most:
            raise NoMeaning(
                f"the program tells {size} apart at {threshold.value}, and a proof runs up to {size} = {most}",
                threshold.where,
                None,
                f"decide it by a smaller constant, or prove single calls: --shape {size}=...",
            )
        yield past(plan.operator, plan.settings, size, threshold.value)


def stage_span(plan: Plan, sblock: str | None) -> Span | None:
    """The line of the rule behind an sblock, or behind what scheduling split off it; else the operator's."""
    for kernel in plan.kernels:
        for stage in kernel.stages:
            if sblock is not None and (sblock == stage.name or sblock.startswith(f"{stage.name}_")):
                computation = kernel.computations.get(stage.name) if hasattr(kernel, "computations") else None
                return computation.span if computation is not None else stage.span
    return None


def references(plan: Plan) -> Iterator[Program]:
    """Programs that may be right where this one is wrong, nearest first: the same graph without a schedule,
    the standard library's graph under the same form, then under its other forms."""
    yield from _program(lambda: plan)
    standard = load().operators.get(meaning_of(plan.operator))
    if standard is None:
        return
    yield from _program(lambda: derive(plan.point, standard, plan.specialization))
    for values in product(*standard.forms.values()):
        form = {**plan.point.form, **dict(zip(standard.forms, values, strict=False))}
        yield from _program(
            lambda form=form: derive(evolve(plan.point, form=form), standard, plan.specialization)
        )


def _program(make: Callable[[], Plan]) -> Iterator[Program]:
    try:
        plan = make()
        yield Program.of(plain_functions(Lowering(plan)), pins_of(plan))
    except (PlanRefused, NoMeaning, KeyError):
        return


def verdict(lowering: Lowering, **options) -> tuple[bool | None, str, str, str]:
    """For the contract `same_algorithm`: (holds, evidence, found, needed).

    `holds` is True for a proof, False for a rejection and None where it is unknown, which is never a pass.
    """
    proof = prove(lowering, **options)
    holds = {"field": True, "rejected": False}.get(proof.verdict)
    return (
        holds,
        "field" if holds is not None else "unknown",
        proof.found,
        "equal to the operator's recurrence",
    )
