"""The proof of a device text: a fiber for each thread, thread order and arrival of copies drawn at random.

Elements are those of `kdsl.prove.prover`, in a tower of smaller primes. What only luck of the order would show is a
finding by itself: a race, a read of what a copy may still write, a barrier that not all reach.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from attrs import evolve, field, frozen

from kdsl.emulate.findings import Finding
from kdsl.prove.algebra import Degrees, Elements, Value
from kdsl.prove.bound import assumptions_of, trial_bound, trials_for
from kdsl.prove.cases import Case
from kdsl.prove.device import BITS, MOST_DEGREE, DeviceOutcome, DeviceProgram, degree_of, run_device
from kdsl.prove.engine import Situation
from kdsl.prove.fields import Tower
from kdsl.prove.proof import BOUND, FIELD, REJECTED, UNKNOWN, CaseProof, Difference, Proof
from kdsl.prove.prover import REDRAWS, SCALARS, WORKERS, Trial, assembled, compare
from kdsl.prove.recurrence import MEANINGS, Call, Pieces, port_levels

ORDERS = 4  # further orders in which a race is asked for wrong outputs
SOFTPLUS = "max(x, 0) + log1p(exp(-|x|)) is log(1 + exp(x))"


@frozen
class Subject:
    """What is proved: a device program, the calls, and what it has to compute. `meaning` and `levels` are those of
    the operator unless a program of no operator brings its own."""

    name: str
    program: DeviceProgram = field(repr=False)
    calls: tuple[tuple[Case, Situation], ...] = field(repr=False)
    meaning: Callable[[Mapping[str, Value], Call], Pieces] | None = field(default=None, repr=False)
    levels: Callable[[Call], Mapping[str, int]] = field(default=port_levels, repr=False)

    def pieces(self, inputs: Mapping[str, Value], call: Call) -> Pieces:
        return (self.meaning or MEANINGS[call.operator])(inputs, call)

    def levels_at(self, situation: Situation) -> Mapping[str, int]:
        return self.levels(situation.call)


def prove_threads(
    subject: Subject,
    *,
    trials: int | None = None,
    seed: int | None = None,
    progress: Callable[[str], None] | None = None,
    at_line: Callable[[Finding], Difference] | None = None,
) -> Proof:
    """Every call with as many trials as its bound asks for, or `trials`. `at_line` makes a finding of the kernels a
    difference at a place of the rule."""
    started = time.perf_counter()
    seed = secrets.randbits(63) if seed is None else seed
    run = Run(subject, seed, at_line or difference_of)
    found: list[CaseProof] = []
    with ThreadPoolExecutor(WORKERS) as workers:
        for number, (case, _) in enumerate(subject.calls):
            if progress is not None:
                progress(case.name)
            proof = run.call(number, trials, workers)
            if not isinstance(proof, CaseProof):
                return evolve(proof, seed=seed, seconds=time.perf_counter() - started)
            found.append(proof)
    return Proof(
        FIELD,
        subject.name,
        tuple(found),
        tuple(sorted(run.assumed)),
        TRUSTED,
        seed=seed,
        digest=subject.program.digest,
        seconds=time.perf_counter() - started,
    )


def difference_of(finding: Finding) -> Difference:
    """A finding of the kernels that belongs to no rule."""
    return Difference(finding.sentence, "", code=finding.source)


TRUSTED = ("each PTX instruction in kdsl/emulate/device",)


@frozen(eq=False)
class Run:
    subject: Subject
    seed: int
    at_line: Callable[[Finding], Difference]
    assumed: set[str] = field(factory=set)

    def call(self, number: int, trials: int | None, workers: ThreadPoolExecutor) -> CaseProof | Proof:
        """The degrees first: they show races and what has no meaning too."""
        case, place = self.subject.calls[number]
        depth = 1 + max(self.subject.levels_at(place).values())
        degree, exponents, first = self.degrees(number)
        failed = self.judged(number, first, None)
        if failed is not None:
            return failed
        bound = trial_bound(degree, exponents, depth, BITS - 1)
        needed = trials or trials_for(bound, BOUND / len(self.subject.calls))
        too_large = max(degree, exponents) >= MOST_DEGREE
        if too_large or (trials is None and bound**needed > BOUND / len(self.subject.calls)):
            too_large, needed = True, 1  # which may still reject it
        self.assumed.update(assumptions_of(depth, first.random))
        if first.softplus:
            self.assumed.add(SOFTPLUS)
        for failed in workers.map(lambda trial: self.trial(number, trial, depth), range(needed)):
            if failed is not None:
                return failed
        if too_large:
            obstacle = f"degree {degree} is too large for fields of {BITS} bits"
            return self.unknown(obstacle, "prove smaller calls: --shape")
        return CaseProof(case.name, dict(case.sizes), needed, degree, bound**needed)

    def degrees(self, number: int) -> tuple[int, int, DeviceOutcome]:
        _, place = self.subject.calls[number]
        levels = self.subject.levels_at(place)
        inputs = {
            name: Degrees.indeterminates(layout.shape)
            for name, layout in place.layouts.items()
            if name in levels and name in place.call.given
        }
        inputs |= {name: Degrees.indeterminates(()) for name in SCALARS if name in levels}
        pieces = self.subject.pieces(inputs, place.call)
        values = [value for entries in pieces.values() for _, value in entries]
        found = run_device(self.subject.program, place, {}, levels, None, self.seed & 0xFFFFFFFF)
        degree = max((int(v.degree.max(initial=0)) for v in values), default=0)
        exponents = max((v.exponents for v in values), default=0)
        return max(degree, degree_of(found.outcome)), max(exponents, found.exponents), found

    def trial(self, number: int, trial: int, depth: int) -> Proof | None:
        """A draw, and others where the program divides by an element that happens to be zero."""
        for redraw in range(REDRAWS + 1):
            rng = np.random.default_rng((self.seed, number, trial, redraw))
            try:
                drawn = self.drawn(number, rng, depth)
            except ZeroDivisionError:
                continue
            found = self.run(drawn, int(rng.integers(1 << 32)))
            if not found.outcome.division:
                return self.judged(number, found, drawn)
        case, _ = self.subject.calls[number]
        return self.rejected(Difference("the program divides by zero", case.name))

    def drawn(self, number: int, rng: np.random.Generator, depth: int) -> Trial:
        """Random elements for every float input that is given, and what the outputs have to be."""
        _, place = self.subject.calls[number]
        levels = self.subject.levels_at(place)
        tower = Tower.draw(rng, depth, BITS)
        values = {
            name: tower.elements(rng, layout.shape, levels[name])
            for name, layout in place.layouts.items()
            if name in levels
            and name in place.call.given
            and (name not in place.written or name == "pool")
        }
        values |= {name: tower.elements(rng, (), levels[name]) for name in SCALARS if name in levels}
        pieces = self.subject.pieces({n: Elements(tower, levels[n], v) for n, v in values.items()}, place.call)
        return Trial(tower, place, values, assembled(place, values, pieces))

    def run(self, drawn: Trial, order: int) -> DeviceOutcome:
        levels = self.subject.levels_at(drawn.situation)
        return run_device(self.subject.program, drawn.situation, drawn.values, levels, drawn.tower, order)

    def judged(self, number: int, found: DeviceOutcome, drawn: Trial | None) -> Proof | None:
        """What is wrong with a run, if anything. A run over degrees has no values to compare."""
        case, _ = self.subject.calls[number]
        if found.findings:
            difference = evolve(self.at_line(found.findings[0]), case=case.name)
            return self.rejected(self.with_values(number, difference))
        if found.obstacle is not None:
            return self.unknown(found.obstacle, "use instructions and functions that have a description")
        if drawn is None:
            return None
        difference = compare(drawn.situation.call.operator, case, drawn, found.outcome)
        return None if difference is None else self.rejected(difference)

    def with_values(self, number: int, difference: Difference) -> Difference:
        """The finding with an element that it makes wrong in one of a few orders, where there is one."""
        case, place = self.subject.calls[number]
        depth = 1 + max(self.subject.levels_at(place).values())
        rng = np.random.default_rng((self.seed, number, 0, 0))
        drawn = self.drawn(number, rng, depth)
        seen = difference
        for _ in range(ORDERS):
            found = self.run(drawn, int(rng.integers(1 << 32)))
            if found.outcome.division or found.obstacle is not None:
                continue
            wrong = compare(place.call.operator, case, drawn, found.outcome)
            if wrong is not None and wrong.tensor is not None:
                seen = evolve(difference, tensor=wrong.tensor, at=wrong.at, expected=wrong.expected, found=wrong.found,
                              output=wrong.what)  # fmt: skip
                if wrong.found != "unwritten":
                    break
        return seen

    def rejected(self, difference: Difference) -> Proof:
        return Proof(REJECTED, self.subject.name, difference=difference)

    def unknown(self, obstacle: str, remedy: str) -> Proof:
        return Proof(UNKNOWN, self.subject.name, obstacle=obstacle, remedy=remedy)
