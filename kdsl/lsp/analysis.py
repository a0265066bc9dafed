"""The check of one file, declaration by declaration, done again only for what changed.

The findings of a rule are kept together with every declaration that the check looked at while it made them;
they hold as long as these are the same. An update first gives what is at hand, then goes on with what
the edit made stale, a rule at a time, so that an editor never waits for the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from attrs import define, field, frozen

from kdsl.check.allow import allowed
from kdsl.check.declarations import Declarations, tactic_circles
from kdsl.check.driver import Check
from kdsl.check.files import Loaded
from kdsl.check.findings import Findings
from kdsl.check.library import Library
from kdsl.check.model import Rule
from kdsl.check.rule_lines import RuleNames
from kdsl.check.rules import resolve_rule
from kdsl.lsp.scope import Scope
from kdsl.lsp.session import is_standard
from kdsl.source.diagnostic import Diagnostic, Severity
from kdsl.syntax import nodes as n

RESOLVED = ("right_operators", "operator_names", "right_targets", "right_instructions")
TABLES = ("operators", "targets", "instructions", "tactics", *RESOLVED)
BATCH = 16  # stale rules checked between two states of the findings
EXCEEDED = frozenset({"E140", "E302", "E501"})  # what a form asks, memory and promises: a hover shows them in numbers
WHOLE = ""  # stands for every name of a table


class Watched(dict):
    """A table that notes which of its names were asked for."""

    def __init__(self, table: str, entries: dict, asked: set[tuple[str, str]]):
        super().__init__(entries)
        self._table, self._asked = table, asked

    def __getitem__(self, name):
        self._asked.add((self._table, name))
        return super().__getitem__(name)

    def __contains__(self, name):
        self._asked.add((self._table, name))
        return super().__contains__(name)

    def get(self, name, default=None):
        self._asked.add((self._table, name))
        return super().get(name, default)

    def _all(self):
        self._asked.add((self._table, WHOLE))

    def __iter__(self):
        self._all()
        return super().__iter__()

    def keys(self):
        self._all()
        return super().keys()

    def values(self):
        self._all()
        return super().values()

    def items(self):
        self._all()
        return super().items()


@frozen(eq=False)
class Kept:
    """What the check of one declaration gave, and what it asked for on the way."""

    declaration: n.Node
    partial: bool
    answers: dict[tuple[str, str], object]
    findings: tuple[Diagnostic, ...]
    value: object = None  # the resolved declaration; for a rule also its names
    names: RuleNames | None = None
    right: bool = True  # without errors; a rule that only breaks a limit or a promise has a value all the same


@define(eq=False)
class Analysis:
    """The state of the check of one file; `update` after every change of a text."""

    kept: dict[tuple[str, int], Kept] = field(factory=dict)
    pairs: dict[tuple[int, int], tuple[RuleNames, RuleNames, tuple[Diagnostic, ...]]] = field(factory=dict)
    rechecked: int = 0  # declarations checked in the last update
    diagnostics: tuple[Diagnostic, ...] = ()
    library: Library = field(factory=Library)
    rules: dict[str, RuleNames] = field(factory=dict)
    complete: bool = False
    derived: dict[int, tuple[Kept, tuple[Diagnostic, ...]]] = field(factory=dict)  # by the identity of the Kept
    _checked: tuple[Diagnostic, ...] = ()

    def underived(self) -> list[Kept]:
        """Right rules whose derivation has not been tried since they changed."""
        return [k for k in self.kept.values() if k.right and isinstance(k.value, Rule) and id(k) not in self.derived]

    def add_derivation(self, kept: Kept, findings: tuple[Diagnostic, ...]) -> None:
        """What the derivation refuses of a rule; it holds as long as the check of the rule does."""
        self.derived[id(kept)] = (kept, findings)
        self.merge()

    def merge(self) -> None:
        """The findings of the check, and those of the derivation of rules that are as they were."""
        alive = {id(kept) for kept in self.kept.values()}
        self.derived = {key: found for key, found in self.derived.items() if key in alive}
        refused = [d for _, findings in self.derived.values() for d in findings]
        self.diagnostics = tuple(sorted((*self._checked, *refused), key=lambda d: d.order))

    def update(self, scope: Scope) -> Iterator[None]:
        """Go through the file; yields after every step that may take long."""
        self.rechecked, self.complete = 0, False
        run = _Run(self, scope)
        run.declare()
        stale = run.fresh_rules()
        self.publish(run)
        yield
        for number, declaration in enumerate(stale, 1):
            run.rule(declaration)
            if number % BATCH == 0:
                self.publish(run)
            yield
        if stale:
            self.publish(run)
            yield
        yield from run.conflicts()
        self.complete = True
        run.forget()
        self.publish(run)

    def publish(self, run: _Run) -> None:
        shown = set(run.loaded.paths)
        found = (*run.loaded.diagnostics, *(d for d in run.found() if concerns(d, shown)))
        self._checked = tuple(allowed(found, run.loaded.trees))
        self.library, self.rules = run.library, run.names
        self.merge()


@define(eq=False)
class _Run:
    analysis: Analysis
    scope: Scope
    findings: Findings = field(factory=Findings)
    by_rule: dict[int, tuple[Diagnostic, ...]] = field(factory=dict)
    by_pair: list[Diagnostic] = field(factory=list)
    declared: Declarations = field(factory=Declarations)
    library: Library = field(factory=Library)
    names: dict[str, RuleNames] = field(factory=dict)
    touched: set[tuple[str, int]] = field(factory=set)

    @property
    def loaded(self) -> Loaded:
        return self.scope.loaded

    def found(self) -> list[Diagnostic]:
        """All findings so far, the same one once."""
        every = Findings()
        for group in (self.findings.diagnostics, *self.by_rule.values(), self.by_pair):
            for diagnostic in group:
                every.add(diagnostic)
        return every.diagnostics

    def declare(self) -> None:
        """Names, then everything but rules: they are few, and most are kept."""
        own = [d for tree in self.loaded.trees for d in tree.declarations]
        standard, others = [], []
        for path, tree in self.scope.sources():
            if path not in self.loaded.paths:
                (standard if is_standard(path) else others).extend(
                    d for d in tree.declarations if not isinstance(d, n.Rule)
                )
        self.declared.add((*standard, *own), self.findings)
        self.declared.add(others, Findings())  # a name declared again elsewhere is no finding of this file
        tactic_circles(self.declared, self.findings)
        mine = {id(d) for d in own}
        self._hardware(mine)
        for declaration in tuple(self.declared.operators.values()):
            self._operator(declaration, mine)
        self._run().tactics(mine)
        self.library.tactics.update(self.declared.tactics)

    def _run(self) -> Check:
        return Check(self.loaded, None, self.findings, self.declared, Library())

    def _hardware(self, mine: set[int]) -> None:
        """Instructions and targets: checked every time; one that is as before keeps its identity."""
        check = Check(self.loaded, None, self.findings, self.declared, self.library)
        check.instructions(mine)
        check.targets(mine)
        for kind in ("instructions", "targets"):
            right = self.declared.table(f"right_{kind[:-1]}")
            for name, value in right.items():
                chain = (
                    value.declaration,
                    *(self.declared.targets.get(x) for x in getattr(value, "chain", ())),
                )
                key = (kind, id(value.declaration))
                known = self.analysis.kept.get(key)
                if known is not None and same(dict(enumerate(known.value[1])), dict(enumerate(chain))):
                    right[name] = getattr(self.library, kind)[name] = known.value[0]
                else:
                    self.analysis.kept[key] = Kept(value.declaration, False, {}, (), (value, chain))
                self.touched.add(key)

    def _operator(self, declaration: n.Operator, mine: set[int]) -> None:
        name, partial = declaration.name.text, id(declaration) in self.loaded.partial
        key = ("operator", id(declaration))
        known = self.analysis.kept.get(key)
        if known is None or known.partial != partial:
            self.analysis.rechecked += 1
            alone = Declarations()
            alone.operators[name] = declaration
            check = Check(self.loaded, None, Findings(), alone, Library())
            check.operators(mine)
            value = (alone.right_operators.get(name), alone.operator_names.get(name))
            known = Kept(declaration, partial, {}, tuple(check.findings.diagnostics), value)
            self.analysis.kept[key] = known
        self.touched.add(key)
        for diagnostic in known.findings:
            self.findings.add(diagnostic)
        operator, names = known.value
        if operator is not None:
            self.declared.right_operators[name] = self.library.operators[name] = operator
            self.declared.operator_names[name] = names

    # ---- rules ----
    def fresh_rules(self) -> list[n.Rule]:
        """Take over what still holds, check the rule that was edited, return the other stale ones."""
        stale = []
        edited = None
        for declaration in self.declared.rules.values():
            key = ("rule", id(declaration))
            known = self.analysis.kept.get(key)
            if known is not None and self.holds(known):
                self.take(declaration, known)
            elif known is None and edited is None:
                edited = declaration
            else:
                stale.append(declaration)
                if known is not None:
                    self.touched.add(key)
                    self.by_rule[id(declaration)] = known.findings
        if edited is not None:
            self.rule(edited)
        return stale

    def holds(self, known: Kept) -> bool:
        return known.partial == (id(known.declaration) in self.loaded.partial) and all(
            self.unchanged(question, answer) for question, answer in known.answers.items()
        )

    def unchanged(self, question: tuple[str, str], answer) -> bool:
        now = self.answer(question)
        if question[0] == "broken":
            return now == answer
        return same(now, answer) if question[1] == WHOLE else now is answer

    def answer(self, question: tuple[str, str]):
        """What a table says now: one entry, or all of them."""
        table, name = question
        if table == "broken":
            return frozenset(self.declared.broken_tactics)
        entries = getattr(self.declared, table)
        return dict(entries) if name == WHOLE else entries.get(name)

    def rule(self, declaration: n.Rule) -> None:
        """Check one rule and keep what it gave."""
        self.analysis.rechecked += 1
        asked: set[tuple[str, str]] = {("broken", WHOLE)}
        watched = Declarations(rules=self.declared.rules, broken_tactics=self.declared.broken_tactics)
        for table in TABLES:
            setattr(watched, table, Watched(table, getattr(self.declared, table), asked))
        check = Check(self.loaded, None, Findings(), watched, Library())
        right = check.guarded(declaration, lambda: check.rule(declaration))
        partial = id(declaration) in self.loaded.partial
        shown = right or {d.code for d in check.findings.diagnostics if d.severity is Severity.ERROR} <= EXCEEDED
        value = resolve_rule(declaration) if shown and not partial else None
        names = check.checked_rules[0] if check.checked_rules else None
        answers = {question: self.answer(question) for question in asked}
        known = Kept(declaration, partial, answers, tuple(check.findings.diagnostics), value, names, right)
        self.analysis.kept["rule", id(declaration)] = known
        self.take(declaration, known)

    def take(self, declaration: n.Rule, known: Kept) -> None:
        self.touched.add(("rule", id(declaration)))
        self.by_rule[id(declaration)] = known.findings
        name = declaration.name.text
        if known.value is not None:
            self.library.rules[name] = known.value
        if known.names is not None:
            self.names[name] = known.names

    def conflicts(self) -> Iterator[None]:
        """Pairs of rules that claim one call; a pair is looked at again when one of the two was."""
        from kdsl.contract.conflicts import Bounds, check_conflicts

        pairs = self.analysis.pairs
        alive = {}
        bounds = {id(names): Bounds.of(names) for names in self.names.values()}
        for first, second in combinations(self.names.values(), 2):
            key = (id(first), id(second))
            if first.operator is not second.operator or bounds[key[0]].apart(bounds[key[1]]):
                continue
            known = pairs.get(key)
            if known is None:
                found = Findings()
                check_conflicts((first, second), found)
                known = (first, second, tuple(found.diagnostics))
                yield
            alive[key] = known
            self.by_pair += known[2]
        self.analysis.pairs = alive

    def forget(self) -> None:
        """Drop what was kept of declarations that are gone."""
        kept = self.analysis.kept
        self.analysis.kept = {key: kept[key] for key in kept if key in self.touched}


def concerns(diagnostic: Diagnostic, paths: set[str]) -> bool:
    """Whether a finding is in these files, or in a tactic that one of them applies."""
    return diagnostic.span.path in paths or any(label.span.path in paths for label in diagnostic.labels)


def same(one: dict, other: dict) -> bool:
    """Whether two tables hold the same objects under the same names."""
    return len(one) == len(other) and all(name in other and other[name] is value for name, value in one.items())
