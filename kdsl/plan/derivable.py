"""Does a rule derive? At each choose point, for what nobody asked otherwise and for each option and dtype in turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from attrs import evolve, frozen

from kdsl.check.driver import applied_at
from kdsl.check.evaluate import NotStatic, Undecided, decide
from kdsl.check.library import Library
from kdsl.check.model import Operator, Rule, RulePoint, Specialization, Target
from kdsl.check.points import PointFindings, choice_points
from kdsl.check.rules import rule_at
from kdsl.plan.derive import derive
from kdsl.plan.refusal import PlanRefused
from kdsl.plan.specialize import SettingRefused, port_dtypes, specialize
from kdsl.source.diagnostic import Diagnostic, Evidence, Severity

MOST_POINTS = 64  # of one rule for one family of targets


def derivations(library: Library, rules: Iterable[Rule], target: str | None = None) -> tuple[Diagnostic, ...]:
    """What the derivation refuses, one finding a cause with the points at which it does."""
    found: list[Diagnostic] = []
    for rule in rules:
        targets = [library.targets[name] for name in rule.targets if target in (None, name)]
        findings = _Derivations(library, rule, library.operators[rule.operator]).over(targets)
        found += [applied_at(d, rule.declaration, library) for d in findings]
    return tuple(found)


@frozen
class _Derivations:
    library: Library
    rule: Rule
    operator: Operator

    def over(self, targets: Iterable[Target]) -> Iterator[Diagnostic]:
        findings = PointFindings(tuple(self.rule.choices))
        made: list[tuple[RulePoint, PlanRefused | None, str]] = []
        skipped = 0
        counted: dict[str, int] = {}
        for target in targets:
            for choices in choice_points(self.rule, target.name):
                try:
                    point = rule_at(self.rule, target, choices, self.library.tactics)
                except (Undecided, NotStatic):
                    continue  # a finding of the check
                same = next((m for m in made if alike(m[0], point)), None)
                if same is None:
                    counted[target.family] = counted.get(target.family, 0) + 1
                    if counted[target.family] > MOST_POINTS:
                        skipped += 1
                        continue
                    same = (point, *self.refusal(point))
                    made.append(same)
                findings.visit(point)
                if same[1] is not None:
                    diagnostic = evolve(same[1].diagnostic, evidence=Evidence.PROVED)
                    notes = (*diagnostic.notes, same[2]) if same[2] else diagnostic.notes
                    findings.add(point, evolve(diagnostic, notes=notes), False, "")
        yield from findings.merged()
        if skipped:
            yield self.left_out(skipped, len(made))

    def refusal(self, point: RulePoint) -> tuple[PlanRefused | None, str]:
        """The first refusal, and in words which settings it needs besides the default ones."""
        for special, setting in settings(self.operator, self.rule):
            try:
                derive(point, self.operator, special)
            except PlanRefused as refused:
                if not refused.code.startswith("R"):  # a call that the rule does not take
                    return refused, setting
            except (Undecided, NotStatic):
                continue
        return None, ""

    def left_out(self, skipped: int, done: int) -> Diagnostic:
        return Diagnostic(
            "W507", f"rule `{self.rule.name}` was derived at {done} of {done + skipped} points",
            self.rule.declaration.name.span, severity=Severity.WARNING, evidence=Evidence.UNKNOWN,
            help=("`kdsl lower --choose NAME=VALUE` derives any other; fewer values in `choose` are all checked",),
        )  # fmt: skip


def alike(first: RulePoint, second: RulePoint) -> bool:
    """Whether two points have the same plan: the same kernels for the same family."""
    return (
        first.target.family == second.target.family
        and first.choices == second.choices
        and first.form == second.form
        and first.kernels == second.kernels
    )


def settings(operator: Operator, rule: Rule) -> Iterator[tuple[Specialization, str]]:
    """What nobody asked otherwise; then each other value of an option, dtype or size, one at a time."""
    try:
        yield specialize(operator, rule), ""
    except SettingRefused:
        return
    for kind, name, value in alternatives(operator, rule):
        try:
            special = specialize(operator, rule, **{kind: {name: value}})
        except SettingRefused:
            continue
        if lawful(operator, special):
            yield special, f"with {name} = {str(value).lower() if isinstance(value, bool) else value}"


def alternatives(operator: Operator, rule: Rule) -> Iterator[tuple[str, str, object]]:
    base = specialize(operator, rule)
    for name, value in base.options.items():
        yield from (("options", name, other) for other in operator.options[name].values if other != value)
    for name in operator.ports:
        yield from (("dtypes", name, other) for other in port_dtypes(operator, name) if other != base.dtypes[name])
    for name, value in base.sizes.items():
        size = operator.sizes[name]
        yield from (("sizes", name, other) for other in (size.low, size.high) if other not in (None, value))


def lawful(operator: Operator, special: Specialization) -> bool:
    known: Mapping[str, object] = {**special.sizes, **special.options}
    return all(decide(claim.predicate, known) is not False for claim in operator.laws)

