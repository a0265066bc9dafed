"""From texts to findings: the whole check in a straight line, one declaration after the other."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from attrs import define, evolve, field, frozen

from kdsl.check.allow import allowed
from kdsl.check.coverage import check_coverage
from kdsl.check.declarations import Declarations, tactic_circles
from kdsl.check.files import Loaded, load_files, load_text, standard_trees
from kdsl.check.findings import Findings
from kdsl.check.hardware import chain, check_instruction, check_target, extends_circle
from kdsl.check.kernel_lines import KernelLines, check_kernels, unused_choices
from kdsl.check.library import Library
from kdsl.check.model import Operator, walk
from kdsl.check.operator_graph import check_operator_graph
from kdsl.check.operator_lines import check_operator_lines
from kdsl.check.operator_names import OperatorNames
from kdsl.check.operators import resolve_operator
from kdsl.check.placement import check_placement
from kdsl.check.points import PointFindings, Walk
from kdsl.check.products import check_products
from kdsl.check.rule_lines import RuleNames, check_rule_lines, check_tactic, rule_names
from kdsl.check.rules import resolve_rule
from kdsl.check.schedule import check_parameters, check_schedule
from kdsl.check.targets import resolve_instruction, resolve_target
from kdsl.source.diagnostic import Diagnostic, Label, Severity
from kdsl.source.span import SourceFile, Span
from kdsl.syntax import nodes as n


@frozen
class CheckResult:
    """What a check found. `library` holds everything that is right, the standard library with it."""

    diagnostics: tuple[Diagnostic, ...]
    library: Library
    files: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return all(d.severity is not Severity.ERROR for d in self.diagnostics)


def check_paths(paths: Iterable[str | Path], target: str | None = None) -> CheckResult:
    """Check files and folders; with `target`, rules only on that one. A missing path is a finding (E030)."""
    return check_loaded(load_files(paths), target)


def check_source(text: str | SourceFile, path: str = "<text>") -> tuple[Diagnostic, ...]:
    """Findings of one text with the standard library in scope. Never raises."""
    source = text if isinstance(text, SourceFile) else SourceFile(path, text)
    return check_loaded(load_text(source), None).diagnostics


def check_loaded(loaded: Loaded, target: str | None) -> CheckResult:
    run = Check(loaded, target)
    run.run()
    shown = {path for path in loaded.paths}
    diagnostics = [*loaded.diagnostics, *(d for d in run.findings.diagnostics if concerns(d, shown))]
    diagnostics = allowed(diagnostics, loaded.trees, unused=target is None)
    diagnostics.sort(key=lambda d: d.order)
    return CheckResult(tuple(diagnostics), run.library, tuple(loaded.paths))


def concerns(diagnostic: Diagnostic, shown: set[str]) -> bool:
    """Whether a finding is about the files that were named: every error is, and what points into one of them."""
    if not shown or diagnostic.severity is Severity.ERROR:
        return True
    return any(span.path in shown for span in (diagnostic.span, *(x.span for x in diagnostic.labels)))


# Operators of the standard library, resolved once a process: its trees are kept, so their ids stay theirs.
STANDARD: dict[int, tuple[OperatorNames, Operator]] = {}


@define
class Check:
    loaded: Loaded
    target: str | None
    findings: Findings = field(factory=Findings)
    declared: Declarations = field(factory=Declarations)
    library: Library = field(factory=Library)
    standard: set[int] = field(factory=set)

    def run(self) -> None:
        standard = [d for tree in standard_trees(self.loaded.paths) for d in tree.declarations]
        own = [d for tree in self.loaded.trees for d in tree.declarations]
        self.standard = {id(d) for d in standard}
        self.declared.add((*standard, *own), self.findings)
        tactic_circles(self.declared, self.findings)
        mine = {id(d) for d in own}
        for step in (self.instructions, self.targets, self.operators, self.tactics, self.rules):
            step(mine)
        from kdsl.contract.conflicts import check_conflicts  # contracts build on the check's model

        check_conflicts(self.checked_rules, self.findings)

    checked_rules: list[RuleNames] = field(factory=list)

    def guarded(self, declaration: n.Node, check) -> bool:
        """Run one check; whether it made no error."""
        before = len(self.findings)
        try:
            check()
        except RecursionError:
            self.findings.add(Diagnostic("E019", "with its tactics expanded, this is nested too deeply",
                            declaration.name.span, help=("split the longest expression in it",)))  # fmt: skip
        return all(d.severity is not Severity.ERROR for d in self.findings.diagnostics[before:])

    def partial(self, declaration: n.Node) -> bool:
        return id(declaration) in self.loaded.partial

    def instructions(self, mine: set[int]) -> None:
        for name, declaration in self.declared.instructions.items():
            if id(declaration) not in mine or (
                not self.partial(declaration)
                and self.guarded(declaration, lambda d=declaration: check_instruction(d, self.findings))
            ):
                resolved = resolve_instruction(declaration)
                self.declared.right_instructions[name] = self.library.instructions[name] = resolved

    def targets(self, mine: set[int]) -> None:
        table = self.declared.targets
        broken = {
            name for name, declaration in table.items()
            if id(declaration) in mine
            and (self.partial(declaration)
                 or not self.guarded(declaration,
                                     lambda d=declaration: check_target(d, table, self.findings)))
        }  # fmt: skip
        for name, declaration in table.items():
            if extends_circle(declaration, table, Findings()):
                continue
            line = chain(declaration, table)
            if line[-1].extends is None and not broken & {step.name.text for step in line}:
                resolved = resolve_target(declaration, table)
                self.declared.right_targets[name] = self.library.targets[name] = resolved

    def operators(self, mine: set[int]) -> None:
        for name, declaration in self.declared.operators.items():
            names = None
            if self.partial(declaration):
                continue  # what the parser left out is missing from it
            if id(declaration) not in mine and id(declaration) in STANDARD:
                names, operator = STANDARD[id(declaration)]
                self.declared.right_operators[name] = self.library.operators[name] = operator
                self.declared.operator_names[name] = names
                continue

            def check(declaration=declaration):
                nonlocal names
                names = check_operator_lines(
                    declaration, self.findings if id(declaration) in mine else Findings()
                )

            if self.guarded(declaration, check) and names is not None:
                operator = resolve_operator(declaration)
                if id(declaration) in mine and not self.guarded(
                    declaration, lambda operator=operator: check_operator_graph(operator, self.findings)
                ):
                    continue
                self.declared.right_operators[name] = self.library.operators[name] = operator
                self.declared.operator_names[name] = names
                if id(declaration) in self.standard:
                    STANDARD[id(declaration)] = names, operator

    def tactics(self, mine: set[int]) -> None:
        for name, declaration in self.declared.tactics.items():
            if id(declaration) in mine:
                self.guarded(declaration, lambda d=declaration: check_tactic(d, self.declared, self.findings))
            self.library.tactics[name] = declaration

    def rules(self, mine: set[int]) -> None:
        for name, declaration in self.declared.rules.items():
            known = len(self.checked_rules)
            right = self.guarded(declaration, lambda d=declaration: self.rule(d))
            if right and not self.partial(declaration) and len(self.checked_rules) > known:
                self.library.rules[name] = resolve_rule(declaration)

    def unread(self) -> set[tuple[str, int]]:
        """Lines with syntax errors: what is left of them was not written so."""
        return {(d.span.path, d.span.line) for d in self.loaded.diagnostics}

    # ---- one rule ----
    def rule(self, declaration: n.Rule) -> None:
        findings = Findings()
        try:
            checked = self.check_rule(declaration, findings)
        finally:
            kept = unfollowed(findings.diagnostics)
            if self.partial(declaration):
                kept = [d for d in kept if stands_alone(d, self.unread())]
            for diagnostic in kept:
                self.findings.add(applied_at(diagnostic, declaration, self.declared))
        if checked is not None and not any(d.severity is Severity.ERROR for d in findings.diagnostics):
            self.checked_rules.append(checked)

    def check_rule(self, declaration: n.Rule, findings: Findings) -> RuleNames | None:
        from kdsl.contract.claims import check_claims, fact_names
        from kdsl.contract.findings import check_contracts
        from kdsl.contract.requirements import check_requirements

        rule = rule_names(declaration, self.declared, findings)
        if rule is None:
            return None
        if self.target is not None:
            rule.targets = tuple(t for t in rule.targets if t.name == self.target)
        rule.facts = fact_names()
        check_rule_lines(rule)
        kernels = check_kernels(rule)
        claims = check_claims(rule, kernels)
        if not self.partial(declaration):
            unused_choices(rule)
            if rule.form_whole:
                self.points(rule, kernels, claims, check_contracts)
            check_requirements(rule)
        return rule

    def points(self, rule: RuleNames, kernels: list[KernelLines], claims, check_contracts) -> None:
        found = PointFindings(tuple(rule.choices))
        walk_points = Walk(rule, kernels, found)
        for point in walk_points.points():
            check_coverage(point)
            check_parameters(point)
            for kernel in point.kernels:
                walk_points.once(point, kernel, (check_schedule, check_placement, check_products))
            check_contracts(point, claims)
        for diagnostic in found.merged():
            rule.findings.add(diagnostic)


def unfollowed(found: list[Diagnostic]) -> list[Diagnostic]:
    """The findings without those that follow from another: what a kernel that is not there would have read, and
    what the largest call of a rule that takes none would need."""
    codes = {d.code for d in found}
    if "E503" in codes:
        found = [d for d in found if d.code not in ("E140", "E302", "E501")]
    if "E401" in codes:
        reader = "unknown stage, kernel or role"
        found = [d for d in found if d.code != "W502" and not (d.message.startswith(reader) and not d.help)]
    return found


def stands_alone(diagnostic: Diagnostic, unread: set[tuple[str, int]]) -> bool:
    """Whether a finding in a rule with syntax errors is one whatever the lines say that could not be read."""
    if diagnostic.code in ("E141", "E404", "W502") or (diagnostic.span.path, diagnostic.span.line) in unread:
        return False
    own = ("unknown name", "unknown role", "unknown stage, kernel or role", "unknown level")
    return not (diagnostic.code == "E101" and diagnostic.message.startswith(own))


def applied_at(diagnostic: Diagnostic, rule: n.Rule, declared: Declarations) -> Diagnostic:
    """A finding in a tactic's text also shows where the rule applies the tactic."""
    if inside(diagnostic.span, rule.span):
        return diagnostic
    tactic = next((t for t in declared.tactics.values() if inside(diagnostic.span, t.span)), None)
    if tactic is None:
        return diagnostic
    for apply in (node for node in walk(rule) if isinstance(node, n.Apply)):
        if reaches(apply.tactic.text, tactic.name.text, declared, set()):
            return evolve(
                diagnostic,
                labels=(*diagnostic.labels, Label(apply.span, f"applied by rule `{rule.name.text}`")),
            )
    return diagnostic


def inside(span: Span, outer: Span) -> bool:
    return span.source is outer.source and outer.first <= span.first and span.last <= outer.last


def reaches(name: str, wanted: str, declared: Declarations, seen: set[str]) -> bool:
    """Whether the tactic applies the other one, through any number of steps."""
    if name == wanted:
        return True
    if name in seen or name not in declared.tactics:
        return False
    seen.add(name)
    return any(reaches(node.tactic.text, wanted, declared, seen)
               for node in walk(declared.tactics[name]) if isinstance(node, n.Apply))  # fmt: skip
