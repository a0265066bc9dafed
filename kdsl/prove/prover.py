"""The proof: the recurrence and the program on the same random elements, case by case, trial by trial."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping

import numpy as np
from attrs import evolve, field, frozen

from kdsl.check.model import Operator
from kdsl.prove.algebra import Degrees, Elements
from kdsl.prove.bound import assumptions_of, trial_bound, trials_for
from kdsl.prove.cases import Case, situation
from kdsl.prove.engine import Outcome, Situation, run_degree, run_field
from kdsl.prove.fields import TAINT, Tower
from kdsl.prove.program import Program
from kdsl.prove.proof import BOUND, FIELD, REJECTED, CaseProof, Difference, Proof
from kdsl.prove.recurrence import MEANINGS, Pieces, port_levels

SCALARS = ("scale", "lower_bound")
REDRAWS = 4
AXES = {
    "kda.chunk_forward": {
        "o": ("row", "token", "head", "channel"),
        "final_state": ("n", "head", "key", "channel"),
    },
    "kda.decode": {"o": ("n", "token", "head", "channel"), "pool": ("slot", "head", "key", "channel")},
}


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
    tower = Tower.draw(rng, max(depth, 1 + max(levels.values())))
    call = situation.call
    values = {
        name: tower.elements(rng, layout.shape, levels[name])
        for name, layout in situation.layouts.items()
        if name in levels and name in call.given and (name not in situation.written or name == "pool")
    }
    values |= {name: tower.elements(rng, (), levels[name]) for name in SCALARS if name in levels}
    pieces = MEANINGS[call.operator]({n: Elements(tower, levels[n], v) for n, v in values.items()}, call)
    return Trial(tower, situation, values, _assembled(situation, values, pieces))


def _assembled(
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


def failure_of(subject: Subject, case: Case, trial: Trial) -> Failure | None:
    """Run the program in both thread orders. Raises ZeroDivisionError where this draw divides by zero."""
    for backwards in (False, True):
        outcome = run_field(subject.program, trial.tower, trial.situation, trial.values, backwards=backwards)
        difference = compare(subject.operator.name, case, trial, outcome)
        if difference is not None:
            if backwards:
                difference = evolve(difference, what=f"{difference.what}, when threads run in reverse order")
            return Failure(case, trial, backwards, difference)
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
            at = dict(zip(AXES[operator][name], (int(x) for x in where), strict=False))
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
    rng = np.random.default_rng(seed)
    program, proved = subject.program, []
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
    for case in subject.cases:
        if progress is not None:
            progress(case.name)
        found = _prove_case(subject, case, rng, trials)
        if isinstance(found, Failure):
            difference = found.difference if locate is None else locate(found)
            return Proof(
                REJECTED,
                cases=tuple(proved),
                difference=difference,
                seconds=time.perf_counter() - started,
                **common,
            )
        proved.append(found)
    return Proof(FIELD, cases=tuple(proved), seconds=time.perf_counter() - started, **common)


def _prove_case(
    subject: Subject, case: Case, rng: np.random.Generator, trials: int | None
) -> CaseProof | Failure:
    place = situation(subject.operator, case, subject.settings, subject.options, subject.program.strides)
    done, wanted, bound, degree = 0, 1, 1.0, 0
    while done < wanted:
        failure, redraws = None, 0
        while True:
            trial = draw(rng, subject.program.depth, place)
            try:
                failure = failure_of(subject, case, trial)
                break
            except ZeroDivisionError:
                redraws += 1
                if redraws > REDRAWS:
                    return Failure(case, trial, False, Difference("the program divides by zero", case.name))
        if failure is not None:
            return failure
        if not done:  # the degree costs a second compilation: only programs that pass once need it
            degree, exponents = degrees_of(subject.program, place)
            bound = trial_bound(degree, exponents, trial.tower.depth)
            wanted = trials if trials is not None else trials_for(bound, BOUND / len(subject.cases))
        done += 1
    return CaseProof(case.name, dict(case.sizes), wanted, degree, bound**wanted)
