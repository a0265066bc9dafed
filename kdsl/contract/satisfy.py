"""Is there a call that meets these conditions? A sound search over options, dtypes and sizes.

A call that is found is a proof that there is one. That none is found is a proof only if the search was
complete: then every condition speaks of at most one unbounded number at a time, and the candidates of each
number stand for all its values (every interval between the constants it is compared with, and in it every
remainder of the moduli it is divided by). Otherwise interval arithmetic may still refute a condition; if it
does not, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf, lcm

from attrs import define, field, frozen

from kdsl.check.evaluate import decide
from kdsl.check.model import Operator, names_in
from kdsl.contract.clash import clash
from kdsl.contract.conditions import (
    Condition,
    atoms,
    dtypes_of,
    is_direct,
    moduli_of,
    numbers_in,
    outcomes,
    ranges_of,
    truth,
    valueless,
    variables,
)
from kdsl.contract.progressions import stand_ins
from kdsl.contract.refute import refutes
from kdsl.syntax import nodes as n

MOST_NODES = 20_000
MOST_PERIOD = 512
MOST_ALONE = 4096
MOST_SOLVED = 4096
_SOLVED: dict[tuple, tuple] = {}
PREFERRED = (128, 1, 16, 64, 32, 8192, 256, 2, 8, 96)


@frozen
class Outcome:
    """`call`: an assignment that meets the conditions; without one, `refuted` says whether there is none."""

    call: Mapping[str, object] | None
    refuted: bool


def law_conditions(operator: Operator) -> tuple[Condition, ...]:
    return tuple(Condition(claim.predicate) for claim in operator.laws)


def search(operator: Operator, conditions: Iterable[Condition], env: Mapping[str, object]) -> Outcome:
    """A call that meets the conditions and the operator's laws; `env` holds what is known (target, choices,
    form).
    """
    wanted = [
        c for c in (*conditions, *law_conditions(operator)) if not isinstance(c.predicate, (n.Uses, n.Within))
    ]
    if any(_refuted(operator, c, env) or (c.wanted and valueless(c.predicate, env)) for c in wanted):
        return Outcome(None, True)
    if clash(wanted, env):
        return Outcome(None, True)
    call: dict[str, object] = {}
    complete = True
    for part in components(operator, wanted):
        found, refuted = _solved(operator, part, env)
        if refuted:
            return Outcome(None, True)
        complete = complete and found is not None
        call.update(found or {})
    if not complete:
        return Outcome(None, False)
    return Outcome({**(_solved(operator, [], {})[0] or {}), **call}, False)


def _solved(operator: Operator, part: list[Condition], env: Mapping[str, object]):
    """(a call or None, whether there is none); found once for the same conditions and values of what they speak of."""
    names = {name for c in part for name in variables(c.predicate)}
    known = {name: env[name] for name in sorted(names) if name in env}
    same = (id(operator), *((id(c.predicate), c.wanted) for c in part))
    key = (same, *known.items())
    found = _SOLVED.get(key)
    if found is None:
        answer = _guessed(same, part, known)
        if answer is None:
            problem = _Problem(operator, part, dict(known))
            call = problem.solve()
            done = problem.complete and not problem.stopped
            answer = call, call is None and (done or refutes(operator, part, known))
        if len(_SOLVED) >= MOST_SOLVED:
            _SOLVED.clear()
        found = _SOLVED[key] = (operator, tuple(part), answer)  # alive, so that no other object gets their ids
        if answer[0] is not None:
            _SOLVED[same] = found
    return found[2]


def _guessed(same: tuple, part: list[Condition], known: Mapping[str, object]):
    """What met the same conditions on another target or at other choices, if it does here."""
    found = _SOLVED.get(same)
    if found is None:
        return None
    env = {**known, **found[2][0]}
    return (found[2][0], False) if all(truth(c.predicate, env) is c.wanted for c in part) else None


def components(operator: Operator, conditions: list[Condition]) -> list[list[Condition]]:
    """Conditions that share no name can be met apart."""
    groups: list[tuple[set[str], list[Condition]]] = []
    for condition in conditions:
        names, members = set(variables(condition.predicate)), [condition]
        apart = []
        for group in groups:
            if group[0] & names:
                names |= group[0]
                members = [*group[1], *members]
            else:
                apart.append(group)
        groups = [*apart, (names, members)]
    return [members for _, members in groups]


@define
class _Problem:
    operator: Operator
    conditions: list[Condition]
    env: dict[str, object]
    complete: bool = True
    stopped: bool = False
    nodes: int = 0
    order: list[tuple[str, tuple]] = field(factory=list)
    about: dict[str, list[Condition]] = field(factory=dict)

    def solve(self) -> dict[str, object] | None:
        mentioned = {name for c in self.conditions for name in variables(c.predicate)}
        if not self.conditions:
            mentioned = {
                *self.operator.sizes,
                *(k for k, o in self.operator.options.items() if o.kind != "scalar"),
            }
        for condition in self.conditions:
            for name in variables(condition.predicate):
                self.about.setdefault(name, []).append(condition)
        self.order = sorted(self.domains(mentioned), key=self.turn)
        if any(self.violated(c) for c in self.conditions):
            return None
        return self.extend(0)

    def turn(self, domain: tuple[str, tuple]) -> tuple:
        """What has few values first; of the sizes, those that most conditions speak of: they fail together."""
        name, values = domain
        size = name in self.operator.sizes
        return size, -len(self.about.get(name, ())) if size else 0, len(values)

    def extend(self, depth: int) -> dict[str, object] | None:
        if depth == len(self.order):
            return {name: self.env[name] for name, _ in self.order} if self.met() else None
        name, values = self.order[depth]
        for value in values:
            self.nodes += 1
            if self.nodes > MOST_NODES:
                self.stopped = True
                break
            self.env[name] = value
            if not any(self.violated(c) for c in self.about.get(name, ())):
                found = self.extend(depth + 1)
                if found is not None or self.stopped:
                    return found
        self.env.pop(name, None)
        return None

    def met(self) -> bool:
        return all(truth(c.predicate, self.env) is c.wanted for c in self.conditions)

    def violated(self, condition: Condition) -> bool:
        return truth(condition.predicate, self.env) is (not condition.wanted)

    # ---- candidates ----
    def domains(self, mentioned: set[str]) -> list[tuple[str, tuple]]:
        found: list[tuple[str, tuple]] = []
        for name in (x for x in self.operator.sizes if x in mentioned):
            found.append((name, self.numbers(name)))
        for name, option in self.operator.options.items():
            if name not in mentioned:
                continue
            if option.kind == "scalar":
                found.append((name, self.scalars(name)))
            else:
                first = decide(option.default, {}) if option.default is not None else None
                found.append((name, tuple(sorted(option.values, key=lambda value, first=first: value != first))))
        for name in sorted(mentioned):
            if name.startswith("given."):
                found.append((name, (False, True)))
            elif name.startswith("dtype."):
                found.append((name, dtypes_of(self.operator, name.partition(".")[2])))
        return found

    def compared(self, name: str) -> tuple[set[float], set[int]]:
        """Constants that the number is compared with, and moduli it is divided by."""
        constants: set[float] = set()
        moduli: set[int] = set()
        for condition in self.conditions:
            for atom in atoms(condition.predicate):
                names = set(names_in(atom))
                if name not in names:
                    continue
                free = [x for x in names if x in self.operator.sizes or self.is_scalar(x)]
                if len(free) > 1:
                    self.complete = self.complete and all(self.bounded(x) for x in free)
                for number in numbers_in(atom, self.env):
                    constants.add(number)
                moduli |= {m for m in moduli_of(atom, name, self.env)}
                if not is_direct(atom, name):
                    self.complete = self.complete and self.bounded(name)
        return constants, moduli

    def is_scalar(self, name: str) -> bool:
        option = self.operator.options.get(name)
        return option is not None and option.kind == "scalar"

    def bounded(self, name: str) -> bool:
        size = self.operator.sizes.get(name)
        return (
            size is not None
            and size.low is not None
            and size.high is not None
            and size.high - size.low <= MOST_PERIOD
        )

    def numbers(self, name: str) -> tuple[int, ...]:
        size = self.operator.sizes[name]
        low = size.low if size.low is not None else 0
        high = size.high if size.high is not None else 1 << 40
        alone = self.alone(name, low, size.high)
        constants, moduli = self.compared(name) if alone is None else (set(), set())
        if alone is not None:
            found = set(alone)
        elif self.bounded(name) and not self.single(name):
            found = set(range(low, high + 1))
        else:
            period = lcm(*moduli) if moduli else 1
            if period > MOST_PERIOD:
                self.complete, period = False, 1
            found = set()
            for start in {low, *(int(c) for c in constants if low <= c <= high)}:
                found |= {v for v in range(start - 1, start + period + 1) if low <= v <= high}
            for start in (low, high - period, 1 << 20):
                found |= {v for v in range(max(start, low), min(start + period, high) + 1)}
            found |= {m * k for m in moduli for k in (1, 2) if low <= m * k <= high}
        found |= {v for v in PREFERRED if low <= v <= high}
        first = [v for v in PREFERRED if v in found]
        if name not in self.operator.static_sizes:
            first = [v for v in (1, 16, 64, 128) if v in found]
        return tuple(dict.fromkeys((*first, *sorted(found - {0}), *([0] if 0 in found else []))))

    def alone(self, name: str, low: int, high: int | None) -> list[int] | None:
        """Values that stand for all, where every atom about the number speaks of it alone."""
        if not self.single(name):
            return None
        own = [c.predicate for c in self.conditions if name in names_in(c.predicate)]
        found = stand_ins(name, own, (low, inf if high is None else high), self.env)
        return found if found is not None and len(found) <= MOST_ALONE else None

    def single(self, name: str) -> bool:
        """Whether every atom about the number speaks of it alone."""
        return all(set(names_in(a)) & set(self.operator.sizes) <= {name}
                   for c in self.conditions for a in atoms(c.predicate) if name in names_in(a))  # fmt: skip

    def scalars(self, name: str) -> tuple[float, ...]:
        constants = sorted(self.compared(name)[0])
        between = [(a + b) / 2 for a, b in zip(constants, constants[1:], strict=False)]
        ends = [constants[0] - 1.0, constants[-1] + 1.0] if constants else [0.0]
        return tuple(dict.fromkeys((*map(float, constants), *between, *ends)))


def _refuted(operator: Operator, condition: Condition, env: Mapping[str, object]) -> bool:
    """Whether the ranges of the sizes alone make the condition impossible."""
    if isinstance(condition.predicate, n.Typed):
        return False
    possible = outcomes(condition.predicate, ranges_of(operator), env)
    return condition.wanted not in possible
