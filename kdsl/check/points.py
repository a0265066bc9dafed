"""A rule at every point of its choices on each of its targets, and findings that say at which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, islice, product

from attrs import define, evolve, field, frozen

from kdsl.check.blueprint import Blueprint
from kdsl.check.evaluate import NotStatic, Undecided, decide
from kdsl.check.findings import listed
from kdsl.check.kernel_lines import KernelLines
from kdsl.check.model import Kernel, Target, names_in
from kdsl.check.narrowing import mended_without, narrowed, never_used, span_text
from kdsl.check.operators import block
from kdsl.check.rule_lines import RuleNames
from kdsl.check.rules import form_setting, resolve_kernel
from kdsl.check.sizes import Sizes, conjuncts
from kdsl.source.diagnostic import Diagnostic, Evidence, Label, Severity
from kdsl.source.span import Span
from kdsl.syntax import nodes as n

MOST_POINTS = 4096
MOST_GROUPS = 4  # points, or groups of them, that a note lists


@define
class KernelAtPoint:
    """One kernel at one point: resolved, with the lines it came from and its part of the graph."""

    lines: KernelLines
    kernel: Kernel
    graph: Blueprint

    @property
    def name(self) -> str:
        return self.kernel.name

    def nodes(self, kind: str) -> tuple[n.Node, ...]:
        return block(self.lines.declaration.items, kind)


@define
class Point:
    """One value of every choice on one target."""

    rule: RuleNames
    target: Target
    choices: dict[str, object]
    env: dict[str, object]  # choices, form and target fields
    form: dict[str, object]
    graph: Blueprint
    kernels: list[KernelAtPoint]
    sizes: Sizes
    findings: PointFindings
    uncovered: bool = False  # some part is computed by no kernel, or by two
    record: list | None = None  # what is reported now, for points at which the same kernel would say the same

    def value(self, expr: n.Expr | None) -> object | None:
        return decide(expr, self.env) if expr is not None else None

    def report(self, diagnostic: Diagnostic, everywhere: bool = False, subject: str = "") -> None:
        """`subject` tells apart causes with one code and place."""
        self.findings.add(self, diagnostic, everywhere, subject)
        if self.record is not None:
            self.record.append((diagnostic, everywhere, subject))

    def absent(
        self, kernel: KernelAtPoint, name: n.Id, kind: str, reason: str, labels: tuple[Label, ...]
    ) -> None:
        """A stage or tensor that the kernel does not have here; a finding if it never has it."""
        if not (self.uncovered or self.rule.form_guessed):
            found = Absent(kernel.name, kind, name, reason, labels)
            self.findings.miss(self, found)
            if self.record is not None:
                self.record.append(found)


@frozen
class Absent:
    """A name in a kernel's lines that its graph does not have."""

    kernel: str
    kind: str  # stage, tensor
    name: n.Id
    reason: str
    labels: tuple[Label, ...]


@define
class PointFindings:
    """Findings by cause; the same cause at several points is one diagnostic that names them."""

    names: tuple[str, ...]
    total: set[tuple] = field(factory=set)
    found: dict[tuple, list[tuple[tuple, Diagnostic]]] = field(factory=dict)
    everywhere: set[tuple] = field(factory=set)
    missing: dict[tuple, tuple[Absent, set[tuple]]] = field(factory=dict)
    unjudged: dict[tuple, set[tuple]] = field(factory=dict)  # points at which memory ran out before a promise's turn
    default: tuple | None = None  # the point of the default values

    def key(self, point: Point) -> tuple:
        return (point.target.name, *point.choices.items())

    def visit(self, point: Point) -> None:
        self.total.add(self.key(point))
        self.default = self.default or self.key(point)

    def miss(self, point: Point, absent: Absent) -> None:
        span = absent.name.span
        key = (absent.kernel, span.path, span.first)
        self.missing.setdefault(key, (absent, set()))[1].add(self.key(point))

    @staticmethod
    def cause(code: str, span: Span, subject: str = "") -> tuple:
        return (code, span.path, span.first, span.last, subject)

    def leave_open(self, point: Point, code: str, span: Span) -> None:
        """Nothing is said of the promise at the point, for the memory that it speaks of is over its budget there."""
        self.unjudged.setdefault(self.cause(code, span), set()).add(self.key(point))

    def add(self, point: Point, diagnostic: Diagnostic, everywhere: bool, subject: str) -> None:
        """With `everywhere`, only a finding if it is made at every point."""
        cause = self.cause(diagnostic.code, diagnostic.span, subject)
        self.found.setdefault(cause, []).append((self.key(point), diagnostic))
        if everywhere:
            self.everywhere.add(cause)

    def merged(self) -> Iterator[Diagnostic]:
        """One finding a cause. What fails at some points only says which values of a choice mend all of that."""
        failed = {cause: {key for key, _ in entries} for cause, entries in self.found.items()}
        partly = {
            cause: keys for cause, keys in failed.items()
            if keys != self.total and cause not in self.everywhere
            and self.found[cause][0][1].severity is Severity.ERROR
        }  # fmt: skip
        union = set().union(*partly.values())
        for cause, entries in self.found.items():
            failing = failed[cause]
            if cause in self.everywhere and failing != self.total:
                continue
            first = entries[0][1]
            note = self.where(failing, self.unjudged.get(cause, set()))
            never = tuple(never_used(self.names, self.total, failing))
            more = () if any("can never be used" in text for text in first.help) else never
            if cause in partly and not (failing == union and mended_without(self.names, self.total, union)):
                fewer = narrowed(self.names, self.total, union, self.default)
                more = (fewer,) if fewer else more
            yield evolve(first, notes=(*first.notes, note) if note else first.notes, help=(*first.help, *more))
        yield from self.never_there()

    def never_there(self) -> Iterator[Diagnostic]:
        """E404: names that a kernel has at no point, one finding for those missing for one reason."""
        groups: dict[tuple[str, str], list[Absent]] = {}
        for absent, keys in self.missing.values():
            if keys == self.total:
                groups.setdefault((absent.kernel, absent.reason), []).append(absent)
        for (kernel, reason), group in groups.items():
            first = group[0]
            names = list(dict.fromkeys(f"`{absent.name.text}`" for absent in group))
            subject = f"{first.kind} {names[0]} is" if len(names) == 1 else f"{listed(names, 6)} are"
            again = tuple(Label(absent.name.span, "nor this") for absent in group[1:5])
            yield Diagnostic("E404", f"{subject} not in kernel `{kernel}`: {reason}", first.name.span,
                             label="not there",
                             labels=(*again, *first.labels), evidence=Evidence.PROVED,
                             help=("drop what is not there, or change the form or the parts",))  # fmt: skip

    def where(self, failing: set[tuple], unjudged: set[tuple]) -> str:
        """`at choose chunk = 32, width = 8; 3 of 4 points hold`, of those that fit in memory."""
        if failing == self.total or not failing:
            return ""
        targets = list(dict.fromkeys(key[0] for key in self.total if any(key[0] == f[0] for f in failing)))
        every = list(dict.fromkeys(key[0] for key in self.total))
        on = f" on {', '.join(sorted(targets))}" if len(targets) < len(every) else ""
        bad = {key[1:] for key in failing}
        points = {key[1:] for key in self.total}
        judged = points - {key[1:] for key in unjudged}
        those = "points" if judged == points else "points that fit in memory"
        counted = f"; {len(judged - bad)} of {len(judged)} {those} hold" if len(points) > 1 else ""
        if bad == points:
            return f"at every choose point{on}" if len(points) > 1 else f"only{on}"
        return f"at choose {self.shortest(bad, points)}{on}{counted}"

    def shortest(self, bad: set[tuple], points: set[tuple]) -> str:
        """The fewest choices that tell the failing points from the others; else the points themselves."""
        for count in (1, 2):
            for positions in combinations(range(len(self.names)), count):
                values = [{point[position] for point in bad} for position in positions]
                chosen = dict(zip(positions, values, strict=True))
                if {x for x in points if all(x[p] in v for p, v in chosen.items())} == bad:
                    return ", ".join(
                        f"{self.names[p]} = {span_text(x for _, x in v)}"
                        for p, v in zip(positions, values, strict=False)
                    )
        return self.grouped(bad, points) or self.some(bad)

    def grouped(self, bad: set[tuple], points: set[tuple]) -> str:
        """`v_tile = 32, depth = 11..20 or v_tile = 64, depth = 10..20`, if two choices tell the failing points."""
        for p, q in combinations(range(len(self.names)), 2):
            pairs = {(point[p], point[q]) for point in bad}
            if {x for x in points if (x[p], x[q]) in pairs} != bad:
                continue
            values: dict[frozenset, set] = {}  # values of the first choice by those of the second that fail with them
            for first in dict.fromkeys(sorted((a for a, _ in pairs), key=str)):
                values.setdefault(frozenset(b[1] for a, b in pairs if a == first), set()).add(first[1])
            if len(values) <= MOST_GROUPS:
                return " or ".join(f"{self.names[p]} = {span_text(those)}, {self.names[q]} = {span_text(seconds)}"
                                   for seconds, those in values.items())  # fmt: skip
        return ""

    @staticmethod
    def some(bad: set[tuple]) -> str:
        shown = sorted(bad, key=str)[:MOST_GROUPS]
        text = " or ".join(", ".join(f"{name} = {value}" for name, value in point) for point in shown)
        return text + (f" and {len(bad) - MOST_GROUPS} more" if len(bad) > MOST_GROUPS else "")


def choice_points(rule: RuleNames, target: str | None = None) -> Iterator[dict[str, object]]:
    """Every combination of the choices, the target's default first."""
    default = rule.defaults_on(target)
    yield default
    for values in islice(product(*rule.choices.values()), MOST_POINTS):
        point = dict(zip(rule.choices, values, strict=False))
        if point != default:
            yield point


@define
class Walk:
    """Makes the points of a rule; kernels that do not differ between points are resolved once."""

    rule: RuleNames
    kernels: list[KernelLines]
    findings: PointFindings
    _resolved: dict[tuple, Kernel | NotStatic | None] = field(factory=dict)
    _graphs: dict[tuple, Blueprint] = field(factory=dict)
    _sizes: dict[tuple, Sizes] = field(factory=dict)
    _names: dict[int, tuple[str, ...]] = field(factory=dict)
    _said: dict[tuple, list] = field(factory=dict)

    def once(self, point: Point, kernel: KernelAtPoint, checks) -> None:
        """Run checks of one kernel, or repeat what they said of it at a point that differs in nothing they
        read.
        """
        active = tuple(k.name for k in point.kernels)
        key = (
            id(kernel.kernel),
            id(kernel.graph),
            id(point.sizes),
            point.target.name,
            active,
            point.uncovered,
        )
        if key in self._said:
            for said in self._said[key]:
                if isinstance(said, Absent):
                    point.findings.miss(point, said)
                else:
                    point.findings.add(point, *said)
            return
        point.record = self._said[key] = []
        for check in checks:
            check(point, kernel)
        point.record = None

    def points(self) -> Iterator[Point]:
        for target in self.rule.targets:
            fields = {f"target.{name}": value for name, value in target.fields.items()}
            for choices in choice_points(self.rule, target.name):
                point = self.point(target, choices, fields)
                if point is not None:
                    self.findings.visit(point)
                    yield point

    def point(self, target: Target, choices: dict[str, object], fields: Mapping[str, object]) -> Point | None:
        env = {**fields, **choices}
        form = {}
        for name, value in self.rule.form.items():
            try:
                form[name] = form_setting(value, env)
            except (Undecided, NotStatic):
                return None
        env.update(form)
        graph = self.memo(self._graphs, self.alternatives(form), lambda: self.rule.graph.under(form))
        sizes = self.memo(
            self._sizes, self.relevant(env), lambda: Sizes.of(self.rule.operator, self.rule.require, env)
        )
        point = Point(self.rule, target, choices, env, form, graph, [], sizes, self.findings)
        for lines in self.kernels:
            self.kernel(point, lines)
        return point

    def memo(self, table: dict, key, make):
        if key not in table:
            table[key] = make()
        return table[key]

    def alternatives(self, form: Mapping[str, object]) -> tuple:
        """What the graph follows from: of the form, all but numbers."""
        return tuple((name, value) for name, value in form.items() if name in self.rule.operator.forms)

    def relevant(self, env: Mapping[str, object]) -> tuple:
        """The values that the sizes a rule takes and extents depend on: of clauses about sizes that have ends, or that
        are equal to something. What is said of all others changes no list of values."""
        if 0 not in self._names:
            ended = {name for name, s in self.rule.operator.sizes.items() if None not in (s.low, s.high)}
            parts = [part for claim in self.rule.require for part in conjuncts(claim.predicate)]
            mentioned = {name for part in parts for name in names_in(part)
                         if ended & set(names_in(part)) or getattr(part, "operator", "") == "=="}  # fmt: skip
            shaped = {x for i in self.rule.operator.indices.values() if i.mode == "local" for x in names_in(i.extent)}
            self._names[0] = tuple(sorted(mentioned | shaped & set(self.rule.operator.parameters)))
        return tuple(env.get(name) for name in self._names[0])

    def kernel(self, point: Point, lines: KernelLines) -> None:
        declaration = lines.declaration
        if declaration.condition is not None and decide(declaration.condition, point.env) is False:
            return
        if id(lines) not in self._names:
            self._names[id(lines)] = names_in(declaration)
        key = (id(lines), *(point.env.get(name) for name in self._names[id(lines)]))
        if key not in self._resolved:
            try:
                self._resolved[key] = resolve_kernel(declaration, point.env, {})
            except NotStatic as problem:
                self._resolved[key] = problem
            except Undecided:
                self._resolved[key] = None
        kernel = self._resolved[key]
        if isinstance(kernel, NotStatic):
            point.report(Diagnostic("E115", str(kernel), kernel.node.span, label="no value here"))
        elif kernel is not None:
            parts = set(kernel.parts)
            graph_key = (self.alternatives(point.form), kernel.parts)
            graph = self.memo(self._graphs, graph_key, lambda: _of_parts(point.graph, parts))
            point.kernels.append(KernelAtPoint(lines, kernel, graph))


def _of_parts(graph: Blueprint, parts: set[str]) -> Blueprint:
    return Blueprint(tuple(s for s in graph.stages if s.stage.part in parts),
                     tuple(c for c in graph.carries if c.carry.part in parts), graph.eithers,
                     graph.cases)  # fmt: skip
