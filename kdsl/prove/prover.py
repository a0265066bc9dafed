"""The proof: the recurrence and the program on the same random elements, case by case, trial by trial."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np
from attrs import evolve, field, frozen

from kdsl.check.model import Operator
from kdsl.prove.algebra import Degrees, Elements
from kdsl.prove.bound import assumptions_of, trial_bound, trials_of_all
from kdsl.prove.cases import Case, situation
from kdsl.prove.engine import WIDTH, Outcome, Situation, run_degree, run_field
from kdsl.prove.fields import TAINT, Tower
from kdsl.prove.program import Program
from kdsl.prove.proof import FIELD, REJECTED, CaseProof, Difference, Proof
from kdsl.prove.recurrence import MEANINGS, Pieces, port_levels

SCALARS = ("scale", "lower_bound")
REDRAWS = 4
WORKERS = 2
AXES = {
    "kda.chunk_forward": {
        "o": ("row", "token", "head", "channel"),
        "final_state": ("n", "head", "key", "channel"),
    },
    "kda.decode": {"o": ("n", "token", "head", "channel"), "pool": ("slot", "head", "key", "channel")},
}


def axes_of(operator: str, name: str, count: int) -> tuple[str, ...]:
    """Names of an output's axes."""
    known = AXES.get(operator, {}).get(name)
    return known or tuple(f"axis {axis}" for axis in range(count))


@frozen(eq=False)
class Trial:
    """One random draw for a call, and what the recurrence makes of it: logical arrays by output."""

    tower: Tower
    situation: Situation
    values: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]


@frozen(eq=False)
class Failure:
    """A trial that the program fails, in which thread order, and how."""

    case: Case
    trial: Trial
    backwards: bool
    difference: Difference


@frozen
class Subject:
    """What is proved: a program for an operator under settings, with the calls to prove it on."""

    name: str
    operator: Operator = field(repr=False)
    settings: Mapping[str, object] = field(repr=False)
    options: Mapping[str, object] = field(repr=False)
    program: Program = field(repr=False)
    cases: tuple[Case, ...] = field(repr=False)


def draw(rng: np.random.Generator, depth: int, situation: Situation) -> Trial:
    """Random elements for every float input that is given, and the recurrence's outputs on them."""
    levels = port_levels(situation.call)
    tower = Tower.draw(rng, depth_of(depth, situation))
    call = situation.call
    values = {
        name: tower.elements(rng, layout.shape, levels[name])
        for name, layout in situation.layouts.items()
        if name in levels and name in call.given and (name not in situation.written or name == "pool")
    }
    values |= {name: tower.elements(rng, (), levels[name]) for name in SCALARS if name in levels}
    pieces = MEANINGS[call.operator]({n: Elements(tower, levels[n], v) for n, v in values.items()}, call)
    return Trial(tower, situation, values, assembled(situation, values, pieces))


def assembled(
    situation: Situation, values: Mapping[str, np.ndarray], pieces: Pieces
) -> dict[str, np.ndarray]:
    """Whole outputs; what no piece covers keeps its value (the pool) or stays unwritten."""
    found = {}
    for name in situation.written:
        if name in situation.call.given:
            shape = situation.layouts[name].shape
            array = (
                values[name].copy() if name in values else np.full(shape, TAINT | np.uint32(777), np.uint64)
            )
            for where, piece in pieces[name]:
                array[where] = piece.values
            found[name] = array.astype(np.uint32)
    return found


def depth_of(depth: int, situation: Situation) -> int:
    """Of the tower: what the program needs, and what the operator's ports need."""
    return max(depth, 1 + max(port_levels(situation.call).values()))


def degrees_of(program: Program, situation: Situation) -> tuple[int, int]:
    """The degree of the difference of program and recurrence, and of the exponents in them."""
    levels = port_levels(situation.call)
    call = situation.call
    inputs = {
        name: Degrees.indeterminates(layout.shape)
        for name, layout in situation.layouts.items()
        if name in levels and name in call.given
    }
    inputs |= {name: Degrees.indeterminates(()) for name in SCALARS if name in levels}
    pieces = MEANINGS[call.operator](inputs, call)
    values = [value for entries in pieces.values() for _, value in entries]
    degree = max((int(v.degree.max(initial=0)) for v in values), default=0)
    exponents = max((v.exponents for v in values), default=0)
    of_program, program_exponents = run_degree(program, situation)
    return max(degree, of_program), max(exponents, program_exponents)


def failure_of(subject: Subject, case: Case, trials: Sequence[Trial], copy: int = 0) -> Failure | None:
    """Run the program in both thread orders on at most WIDTH trials of a case. Raises ZeroDivisionError where these
    draws divide by zero."""
    draws = [(trial.tower, trial.values) for trial in trials]
    for backwards in (False, True):
        outcomes = run_field(subject.program, draws, trials[0].situation, backwards=backwards, copy=copy)
        for trial, outcome in zip(trials, outcomes, strict=True):
            difference = compare(trial.situation.call.operator, case, trial, outcome)
            if difference is not None:
                what = f"{difference.what}, when threads run in reverse order" if backwards else difference.what
                return Failure(case, trial, backwards, evolve(difference, what=what))
            if outcome.division:
                raise ZeroDivisionError
    return None


def compare(operator: str, case: Case, trial: Trial, outcome: Outcome) -> Difference | None:
    """The first thing wrong with an outcome: a fault, a written input, an unwritten or a wrong element."""
    if outcome.fault is not None:
        return Difference(outcome.fault, case.name)
    if outcome.changed:
        return Difference(f"`{outcome.changed[0]}` is written, but it is no output", case.name)
    if outcome.division:
        return None
    for name, expected in trial.expected.items():
        found = outcome.outputs[name]
        wrong = np.flatnonzero(found.reshape(-1) != expected.reshape(-1))
        if len(wrong):
            where = np.unravel_index(int(wrong[0]), expected.shape)
            at = dict(zip(axes_of(operator, name, expected.ndim), (int(x) for x in where), strict=False))
            got = int(found[where])
            unwritten = bool(got & int(TAINT))
            what = f"{len(wrong)} of {expected.size} elements of `{name}` " + (
                "are never written, or fed by memory that never was" if unwritten else "differ"
            )
            text = "unwritten" if unwritten else str(got)
            return Difference(what, case.name, None, name, at, str(int(expected[where])), text)
    return None


def prove_subject(
    subject: Subject,
    *,
    trials: int | None = None,
    seed: int | None = None,
    progress: Callable[[str], None] | None = None,
    locate: Callable[[Failure], Difference] | None = None,
) -> Proof:
    """Every case with as many trials as its bound asks for, or `trials`."""
    started = time.perf_counter()
    seed = secrets.randbits(63) if seed is None else seed
    program = subject.program
    assumed = (
        *program.assumptions,
        *assumptions_of(program.depth, "sqrt_(" in program.body or "log_(" in program.body),
    )
    common = {
        "subject": subject.name,
        "assumptions": assumed,
        "trusted": program.trusted,
        "seed": seed,
        "digest": program.digest,
    }
    found = Run(subject, seed, trials, progress).all()
    if isinstance(found, Failure):
        difference = found.difference if locate is None else locate(found)
        return Proof(REJECTED, difference=difference, seconds=time.perf_counter() - started, **common)
    return Proof(FIELD, cases=found, seconds=time.perf_counter() - started, **common)


class Run:
    """The trials of one proof, on two threads; the degrees, which need a program of their own, beside them.

    What a trial draws depends on the seed, its case and its number alone, and the failure that is told is the
    first in that order.
    """

    def __init__(
        self,
        subject: Subject,
        seed: int,
        trials: int | None,
        progress: Callable[[str], None] | None,
    ):
        self.subject, self.seed, self.trials, self.progress = subject, seed, trials, progress
        self.places = [
            situation(subject.operator, case, subject.settings, subject.options, subject.program.strides)
            for case in subject.cases
        ]
        self.copies: SimpleQueue[int] = SimpleQueue()
        for copy in range(WORKERS):
            self.copies.put(copy)

    def all(self) -> tuple[CaseProof, ...] | Failure:
        """As many trials of each case as run at once, then those that its degree asks for beyond them."""
        numbers = range(len(self.subject.cases))
        at_once = WIDTH if self.trials is None else min(WIDTH, self.trials)
        with ThreadPoolExecutor(WORKERS) as workers, ThreadPoolExecutor(1) as beside:
            # a number of trials that is given is how mutants are judged: most of them need no degree
            degrees = beside.submit(self.degrees) if self.trials is None else None
            failure = self.first(workers, [(number, range(at_once)) for number in numbers])
            if failure is not None:
                return failure
            degrees = self.degrees() if degrees is None else degrees.result()
            bounds = [trial_bound(*degree, self.depth(number)) for number, degree in enumerate(degrees)]
            needed = [self.trials] * len(bounds) if self.trials else trials_of_all(bounds, at_once)
            rest = [
                (number, range(start, min(start + WIDTH, needed[number])))
                for number in numbers
                for start in range(at_once, needed[number], WIDTH)
            ]
            failure = self.first(workers, rest)
            if failure is not None:
                return failure
        counts = [max(at_once, count) for count in needed]
        return tuple(
            CaseProof(case.name, dict(case.sizes), count, degree, bound**count)
            for case, count, (degree, _), bound in zip(self.subject.cases, counts, degrees, bounds, strict=True)
        )

    def first(self, workers: ThreadPoolExecutor, batches: list[tuple[int, range]]) -> Failure | None:
        waiting = [workers.submit(self.batch, *each) for each in batches]
        for (number, trials), future in zip(batches, waiting, strict=True):
            if self.progress is not None and not trials.start:
                self.progress(self.subject.cases[number].name)
            failure = future.result()
            if failure is not None:
                for other in waiting:
                    other.cancel()
                return failure
        return None

    def batch(self, number: int, trials: range) -> Failure | None:
        """A draw for each trial, and others where the program divides by an element that happens to be zero."""
        case, copy = self.subject.cases[number], self.copies.get()
        try:
            for redraw in range(REDRAWS + 1):
                drawn = [self.drawn(number, trial, redraw) for trial in trials]
                try:
                    return failure_of(self.subject, case, drawn, copy)
                except ZeroDivisionError:
                    continue
            return Failure(case, drawn[0], False, Difference("the program divides by zero", case.name))
        finally:
            self.copies.put(copy)

    def drawn(self, number: int, trial: int, redraw: int) -> Trial:
        rng = np.random.default_rng((self.seed, number, trial, redraw))
        return draw(rng, self.subject.program.depth, self.places[number])

    def degrees(self) -> list[tuple[int, int]]:
        return [degrees_of(self.subject.program, place) for place in self.places]

    def depth(self, number: int) -> int:
        return depth_of(self.subject.program.depth, self.places[number])
