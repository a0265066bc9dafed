"""What `kdsl prove` proves: rules at their points under their options, and operators under their forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from attrs import evolve, field, frozen

from kdsl.check.evaluate import decide
from kdsl.check.library import Library
from kdsl.check.model import Operator, Rule
from kdsl.check.rules import points, rule_at
from kdsl.lower.lowering import Lowering
from kdsl.lower.stir.schedule import StepRefused
from kdsl.plan.derive import derive
from kdsl.plan.model import Plan
from kdsl.plan.refusal import PlanRefused
from kdsl.plan.specialize import specialize
from kdsl.prove import forms
from kdsl.prove.lowered import prove
from kdsl.prove.proof import UNKNOWN, Proof
from kdsl.syntax import nodes as n

How = Callable[..., Proof]  # of a lowering, shape and trials, with a seed


@frozen
class Job:
    """One program to prove. `plan` makes it: a rule at a point for options, or a form of an operator."""

    subject: str  # the rule or the operator
    target: str  # empty for a form
    values: Mapping[str, object]  # choices, or the form, and options
    plan: Callable[[], Plan] = field(repr=False)
    scheduled: bool = True
    form: Mapping[str, object] | None = field(default=None, repr=False)  # of an operator's graph

    @property
    def label(self) -> str:
        name = f"{self.subject} on {self.target}" if self.target else self.subject
        return f"{name} at {self.said}" if self.target and self.said else f"{name}: {self.said}" if self.said else name

    @property
    def said(self) -> str:
        """Choices or form, and options that are on."""
        shown = {name: value for name, value in self.values.items() if value is not False}
        return ", ".join(f"{name} = {str(value).lower()}" for name, value in shown.items())

    def of(self, operator: Operator) -> bool:
        """Whether this proves a form of the operator."""
        return self.form is not None and self.subject == operator.name

    def prove(self, shape: Mapping[str, int] | None, trials: int | None, how: How | None = None, **options) -> Proof:
        """`how` proves the lowered rule in another way than by its schedule."""
        if how is not None:
            proof = how(Lowering(self.plan()), shape, trials, **options)
        else:
            proof = prove(Lowering(self.plan()), shape, trials, scheduled=self.scheduled, **options)
        return evolve(proof, subject=self.label)


def rule_jobs(
    library: Library,
    rule: Rule,
    target: str,
    *,
    every_point: bool,
    sizes: Mapping[str, int] = {},
    settings: Mapping[str, object] = {},
    choices: Mapping[str, object] = {},
) -> Iterator[Job]:
    """The rule at its points, under options that cover each value of an option that `require` allows."""
    operator = library.operators[rule.operator]
    static = {name: value for name, value in sizes.items() if name in operator.static_sizes}
    for point in points(rule, target) if every_point else [rule.defaults_on(target)]:
        if any(point[name] != value for name, value in choices.items()):
            continue
        for options in rule_options(operator, rule, point, settings):
            plan = lambda p=point, o=options: _plan(library, rule, target, p, o, static)  # noqa: E731
            yield Job(rule.name, target, {**point, **options}, plan)


def _plan(library: Library, rule: Rule, target: str, choices, options, sizes) -> Plan:
    operator = library.operators[rule.operator]
    point = rule_at(rule, library.targets[target], choices, library.tactics)
    return derive(point, operator, specialize(operator, rule, {}, options, sizes))


def rule_options(
    operator: Operator, rule: Rule, point: Mapping[str, object], settings: Mapping[str, object]
) -> list[Mapping[str, object]]:
    """Options settings with `settings` fixed, as few as hold every value that the rule's `require` allows."""
    allowed = [
        options
        for options in forms.option_settings(operator)
        if all(options.get(name) == value for name, value in settings.items())
        and allows(rule, point, options)
    ]
    missing = {item for options in allowed for item in options.items()}
    found = []
    while missing:
        best = max(allowed, key=lambda options: len(missing & set(options.items())))
        missing -= set(best.items())
        found.append(best)
    return found


def allows(rule: Rule, point: Mapping[str, object], options: Mapping[str, object]) -> bool:
    """No requirement of the rule is decided against these options."""
    return all(
        decide(claim.predicate, {**point, **options}) is not False
        for claim in rule.require
        if not isinstance(claim.predicate, (n.Typed, n.Uses, n.Within))
    )


def form_jobs(library: Library, operator: Operator, *, every: bool = False) -> Iterator[Job]:
    """The forms of an operator on its graph alone."""
    for form in forms.every(operator) if every else forms.covering(operator):
        plan = lambda form=form: forms.plan_of_form(library, form)  # noqa: E731
        yield Job(operator.name, "", {**form.form, **form.options}, plan, scheduled=False, form=form.form)


def proof_of_job(job: Job, shape: Mapping[str, int] | None, trials: int | None, **options) -> Proof:
    """The job's proof; a plan or a schedule that is refused is `unknown`, with the refusal's sentence."""
    try:
        return job.prove(shape, trials, **options)
    except (PlanRefused, StepRefused) as refusal:
        found = refusal.diagnostic
        remedy = found.help[0] if found.help else ""
        return Proof(
            UNKNOWN,
            job.label,
            obstacle=f"it cannot be scheduled: {found.message}",
            remedy=remedy,
            obstacle_span=found.span,
        )
