"""Which rule claims a call, at which choices, and why the others refuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import evolve, field, frozen

from kdsl.check.blueprint import blueprint, setting
from kdsl.check.evaluate import NotStatic, Undecided, evaluate
from kdsl.check.library import Library
from kdsl.check.model import Kernel, Operator, Rule, RulePoint, Target
from kdsl.check.rules import points, rule_at
from kdsl.contract.call import Call, complete_call
from kdsl.contract.calls import value_text
from kdsl.contract.conditions import variables
from kdsl.contract.decide import clause_text, decide
from kdsl.contract.facts import plan_facts
from kdsl.contract.findings import LIMITS
from kdsl.contract.remedies import reasons
from kdsl.contract.resources import Setting
from kdsl.contract.verdict import Status, Verdict
from kdsl.source.diagnostic import Diagnostic, Evidence, Label
from kdsl.source.span import Span
from kdsl.syntax import nodes as n


@frozen
class Refusal:
    """Why a rule does not take a call: the clause, what was found, what is needed, what to do."""

    rule: str
    clause: str
    span: Span = field(eq=False, repr=False)
    found: str
    needed: str
    remedy: str = ""
    message: str = ""  # what the rule says after `else`
    choices: Mapping[str, object] | None = None  # the point that refused; None: the rule as a whole

    def __str__(self) -> str:
        return self.found + (
            f"; {self.remedy}" if self.remedy else f": {self.message}" if self.message else ""
        )


@frozen
class Claimed:
    """A rule that takes the call, at the first point of its choices that can."""

    rule: Rule
    point: RulePoint
    verdicts: tuple[Verdict, ...]
    passed_over: tuple[Refusal, ...] = ()  # of points before this one


@frozen
class Selection:
    """The answer. Exactly one claim is a selection; none or several are findings."""

    operator: Operator
    target: Target
    call: Call
    claims: tuple[Claimed, ...]
    refusals: tuple[Refusal, ...]

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return self.claims[0].verdicts if self.claims else ()

    @property
    def chosen(self) -> Claimed | None:
        return self.claims[0] if len(self.claims) == 1 else None

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """R001 for every refusal if no rule claims the call, R002 if several do, R003 if there is none to
        ask.
        """
        if len(self.claims) > 1:
            return (_ambiguous(self),)
        if self.claims:
            return ()
        return tuple(_refused(self, refusal) for refusal in self.refusals) or (_no_rule(self),)


def select(
    library: Library,
    target: str,
    operator: str,
    sizes: Mapping[str, int],
    dtypes: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
    given: Mapping[str, bool] | None = None,
) -> Selection:
    """Raises WrongCall if the call is not one of the operator's; KeyError for a target or operator not in the
    library.
    """
    found, device = library.operators[operator], library.targets[target]
    call = complete_call(found, sizes, dtypes, options, given)
    broken = tuple(_law_refusals(found, call))
    claims, refusals = [], []
    for rule in library.rules.values():
        if rule.operator != operator or target not in rule.targets:
            continue
        answer = broken[0] if broken else consider(library, rule, device, call)
        if isinstance(answer, Claimed):
            claims.append(answer)
        else:
            refusals += [evolve(r, rule=rule.name) for r in (broken or answer)]
    return Selection(found, device, call, tuple(claims), tuple(refusals))


def _law_refusals(operator: Operator, call: Call) -> Iterator[Refusal]:
    for claim in operator.laws:
        for refusal in refusals_of("", claim, call.env, operator):
            yield evolve(refusal, remedy="")  # sizes of a wrong call are not padded


def consider(library: Library, rule: Rule, target: Target, call: Call) -> Claimed | tuple[Refusal, ...]:
    """The rule's answer to one call."""
    fields = {f"target.{name}": value for name, value in target.fields.items()}
    env = {**fields, **call.env}
    choices = set(rule.choices) | set(call.operator.parameters)
    general = [c for c in rule.require if not _speaks_of(c, choices)]
    refusals = [r for claim in general for r in refusals_of(rule.name, claim, env, call.operator)]
    if refusals:
        return tuple(refusals)
    passed: list[Refusal] = []
    for values in points(rule, target.name):
        answer = _at(library, rule, target, values, call, env)
        if isinstance(answer, Claimed):
            return evolve(answer, passed_over=tuple(passed))
        passed += answer
    return _shared(passed, len(list(points(rule))))


def _shared(passed: list[Refusal], count: int) -> tuple[Refusal, ...]:
    """Refusals of a rule none of whose points fits: one for each clause, the default point's first."""
    seen: dict[tuple, Refusal] = {}
    times: dict[tuple, int] = {}
    for refusal in passed:
        key = (refusal.clause, refusal.span.first, refusal.found)
        seen.setdefault(key, refusal)
        times[key] = times.get(key, 0) + 1
    return tuple(evolve(r, choices=None) if times[key] == count else r for key, r in seen.items())


def _speaks_of(claim: n.Claim, names: set[str]) -> bool:
    return bool(variables(claim.predicate) & names)


def refusals_of(
    rule: str, claim: n.Claim, env: Mapping[str, object], operator: Operator
) -> Iterator[Refusal]:
    """The parts of a clause that the call does not meet."""
    if isinstance(claim.predicate, (n.Uses, n.Within)):
        return
    message = claim.message.value if claim.message is not None else ""
    for reason in reasons(claim.predicate, env, operator):
        yield Refusal(
            rule,
            clause_text(claim),
            claim.predicate.span,
            reason.found,
            reason.needed,
            reason.remedy,
            message,
        )


def _at(library: Library, rule: Rule, target: Target, values, call: Call, env) -> Claimed | list[Refusal]:
    """One point of the choices: the form's requirements, tiles, budgets, then the promises."""
    try:
        point = rule_at(rule, target, values, library.tactics)
    except (Undecided, NotStatic) as problem:
        return [
            Refusal(rule.name, "the choices", rule.declaration.name.span, str(problem), "", choices=values)
        ]
    known = {**env, **values, **point.form}
    refusals = [
        evolve(r, choices=values)
        for claim in rule.require
        for r in refusals_of(rule.name, claim, known, call.operator)
    ]
    refusals += [evolve(r, choices=values) for r in _form_refusals(rule, point, known, call.operator)]
    refusals += [evolve(r, choices=values) for r in _tile_refusals(rule, point, known, call.operator)]
    if refusals:
        return refusals
    settings = {name: setting(v) for name, v in (*point.form.items(), *call.options.items())}
    facts, uses = plan_facts(Setting(call.operator, blueprint(call.operator).under(settings), known,
                                     call.dtypes,
                                     target.family, point.kernels), point.kernels)  # fmt: skip
    for use in uses:
        limit = target.fields.get(LIMITS.get(use.memory, ""))
        if isinstance(limit, int) and use.bytes > limit:
            name = LIMITS[use.memory]
            refusals.append(Refusal(rule.name, f"{use.memory} of kernel {use.kernel}", use.buffers[0].span,
                                    f"{use.bytes} bytes of {use.memory} memory ({use.listed()})",
                                    f"at most {name} = {limit}", choices=values))  # fmt: skip
    verdicts = decide(point, facts, known)
    for verdict in verdicts:
        if verdict.status is Status.FAILS:
            refusals.append(Refusal(rule.name, verdict.clause, verdict.span,
                                    f"`{verdict.clause}` fails: found {verdict.found}",
                                    verdict.needed, choices=values))  # fmt: skip
    return refusals or Claimed(rule, point, verdicts)


def _form_refusals(rule: Rule, point: RulePoint, env, operator: Operator) -> Iterator[Refusal]:
    for alternatives in blueprint(operator).under(point.form).eithers:
        name = alternatives.node.name.text
        for case in alternatives.node.cases:
            if case.name.text == point.form.get(name) and case.requires is not None:
                for refusal in refusals_of(rule.name, case.requires, env, operator):
                    yield evolve(refusal, clause=f"form {name} = {case.name.text} requires {refusal.clause}")


def _tile_refusals(rule: Rule, point: RulePoint, env, operator: Operator) -> Iterator[Refusal]:
    """Tiles and vector widths that must divide what the call has."""
    for kernel in point.kernels:
        for index, by, span, text in _tiles(kernel):
            if operator.indices[index].mode != "local" or by <= 1:
                continue
            try:
                extent = evaluate(operator.indices[index].extent, env)
            except (Undecided, NotStatic):
                continue
            if extent % by:
                source = operator.indices[index].extent.span.text
                subject = f"{source} = {extent}" if source != str(extent) else str(extent)
                remedy = f"pad to {-(-extent // by) * by}" if source in operator.sizes else ""
                yield Refusal(rule.name, text, span, f"{subject} is not a multiple of {by}", text, remedy)


def _tiles(kernel: Kernel) -> Iterator[tuple[str, int, Span, str]]:
    for axis in kernel.grid:
        for index, by in axis.indices:
            yield index, by, axis.span, f"{index} by {by}"
    for computation in kernel.computations.values():
        for kind in ("vector", "over"):
            for index, by in computation.attributes.get(kind, ()):
                yield index, by, computation.span, f"{kind} {index} by {by}"


# ---- findings ----------------------------------------------------------------------------------------------


def _refused(selection: Selection, refusal: Refusal) -> Diagnostic:
    rule = f"rule `{refusal.rule}`" if refusal.rule else selection.operator.name
    where = ""
    if refusal.choices:
        where = " at " + ", ".join(f"{k} = {value_text(v)}" for k, v in refusal.choices.items())
    help_ = tuple(x for x in (refusal.remedy, refusal.message) if x)
    return Diagnostic("R001", f"{rule} refuses the call on {selection.target.name}{where}: {refusal}",
                      refusal.span,
                      label=refusal.found, observed=refusal.found, required=refusal.needed,
                      evidence=Evidence.PROVED,
                      help=help_)  # fmt: skip


def _ambiguous(selection: Selection) -> Diagnostic:
    names = [claimed.rule.name for claimed in selection.claims]
    spans = [claimed.rule.declaration.name.span for claimed in selection.claims]
    return Diagnostic("R002",
                      f"{len(names)} rules claim the call on {selection.target.name}: {', '.join(names)}",
                      spans[1],
                      label="claims it",
                      labels=tuple(Label(s, "claims it too") for s in (spans[0], *spans[2:])),
                      observed=f"{len(names)} rules", required="1 rule", evidence=Evidence.PROVED,
                  help=("add a clause to `require` of one of them that the other one excludes",))  # fmt: skip


def _no_rule(selection: Selection) -> Diagnostic:
    operator, target = selection.operator, selection.target
    return Diagnostic("R003", f"no rule schedules {operator.name} on {target.name}",
                      operator.declaration.name.span,
          help=(f"write one: `rule NAME schedules {operator.name} on {target.name} {{ ... }}`",))  # fmt: skip
