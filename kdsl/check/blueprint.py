"""The whole graph of an operator at once: every stage with the alternatives under which it exists.

Laws of the graph are decided on conditions, not by listing every combination of forms and options: two stages
clash only if their conditions can hold together, and a read is covered if every assignment of the few names
involved has a producer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product

from attrs import field, frozen

from kdsl.check.graph import resolve_carry, resolve_stage
from kdsl.check.model import Carry, Operator, Stage
from kdsl.syntax import nodes as n

Guards = tuple[tuple[str, str], ...]
MOST_ASSIGNMENTS = 4096


@frozen
class GuardedStage:
    stage: Stage
    node: n.Stage
    guards: Guards


@frozen
class GuardedCarry:
    carry: Carry
    node: n.Carry
    guards: Guards


@frozen
class Alternatives:
    """One `either`, where it stands."""

    node: n.Either
    guards: Guards


@frozen
class Blueprint:
    stages: tuple[GuardedStage, ...]
    carries: tuple[GuardedCarry, ...]
    eithers: tuple[Alternatives, ...]
    cases: Mapping[str, tuple[str, ...]]  # of every `either` name, in order of appearance
    defaults: Mapping[str, str] = field(factory=dict)  # of the forms that a rule need not choose

    def under(self, settings: Mapping[str, object]) -> Blueprint:
        """What can exist when some forms or options are set; of the others, forms take their default, and options
        stay open."""
        fixed = {**self.defaults, **{name: setting(value) for name, value in settings.items()}}
        return Blueprint(
            tuple(s for s in self.stages if holds(s.guards, fixed)),
            tuple(c for c in self.carries if holds(c.guards, fixed)),
            tuple(e for e in self.eithers if holds(e.guards, fixed)),
            self.cases,
            self.defaults,
        )


def setting(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def holds(guards: Guards, fixed: Mapping[str, object]) -> bool:
    """Whether nothing set contradicts the guards."""
    return all(fixed.get(name, case) == case for name, case in guards)


def compatible(a: Guards, b: Guards) -> bool:
    return holds(a, dict(b)) and possible(a) and possible(b)


def possible(guards: Guards) -> bool:
    return len(dict(guards)) == len(set(guards))


def blueprint(operator: Operator) -> Blueprint:
    """Made once per operator."""
    found = operator.memo.get("blueprint")
    if found is None:
        found = operator.memo["blueprint"] = _make(operator)
    return found


def _make(operator: Operator) -> Blueprint:
    stages: list[GuardedStage] = []
    carries: list[GuardedCarry] = []
    eithers: list[Alternatives] = []
    cases: dict[str, tuple[str, ...]] = {}
    for part in operator.parts.values():
        for node, guards in _guarded(part.nodes, ()):
            if isinstance(node, n.Stage):
                stages.append(GuardedStage(resolve_stage(operator, node, part.name.text), node, guards))
            elif isinstance(node, n.Carry):
                carries.append(GuardedCarry(resolve_carry(node, part.name.text), node, guards))
            elif isinstance(node, n.Either):
                eithers.append(Alternatives(node, guards))
                names = (case.name.text for case in node.cases)
                cases[node.name.text] = tuple(dict.fromkeys((*cases.get(node.name.text, ()), *names)))
    return Blueprint(tuple(stages), tuple(carries), tuple(eithers), cases, operator.defaults)


def _guarded(nodes: Iterable[n.Node], guards: Guards) -> Iterator[tuple[n.Node, Guards]]:
    for node in nodes:
        if isinstance(node, n.Doc):
            continue
        yield node, guards
        if isinstance(node, n.Either):
            for case in node.cases:
                guard = (node.name.text, case.name.text)
                yield from _guarded(case.nodes, guards if guard in guards else (*guards, guard))


def uncovered(
    wanted: Guards, offered: Iterable[Guards], cases: Mapping[str, tuple[str, ...]]
) -> dict[str, str] | None:
    """An assignment under which `wanted` holds and none of `offered` does; None if there is none.

    Exact while at most MOST_ASSIGNMENTS assignments have to be tried; beyond that only the first are.
    """
    if not possible(wanted):
        return None
    fixed = dict(wanted)
    relevant = [g for g in offered if holds(g, fixed) and possible(g)]
    names = list(dict.fromkeys(name for guards in relevant for name, _ in guards if name not in fixed))
    for tried, values in enumerate(product(*(cases.get(name, ()) for name in names))):
        if tried >= MOST_ASSIGNMENTS:
            return None
        assignment = {**fixed, **dict(zip(names, values, strict=False))}
        if not any(all(assignment.get(k) == v for k, v in guards) for guards in relevant):
            return assignment
    return None


def said(assignment: Mapping[str, str]) -> str:
    """` when decay = centred, chain = split`, or nothing."""
    return " when " + ", ".join(f"{k} = {v}" for k, v in assignment.items()) if assignment else ""
