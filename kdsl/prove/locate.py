"""The first wrong stage of a program that the proof rejects.

The program runs once more with a trace of its buffers, beside a reference whose outputs are right on this
trial: the same graph unscheduled, or the standard library's graph. Buffers are compared by name, in the
order of the stages, step by step. Where every buffer agrees, the stage that writes the wrong output is to
blame.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np
from attrs import evolve

from kdsl.plan.model import Plan, PlannedStage
from kdsl.prove.engine import Outcome, Record, run_field
from kdsl.prove.fields import TAINT, Tower
from kdsl.prove.program import Program
from kdsl.prove.proof import Difference
from kdsl.prove.prover import Failure, Subject, compare

SCOPE = re.compile(
    r"_(shared\.dyn|shared|local|warp)$"
)  # what a schedule adds to the name of a tensor's buffer
Traces = dict[tuple, Record]  # (tensor, indices in scope, whether a step begins) -> what it held


def located(plan: Plan, subject: Subject, failure: Failure, references: Iterator[Program]) -> Difference:
    """The failure's difference, moved to the first wrong stage if a reference can tell which that is."""
    difference = failure.difference
    stages = [stage for kernel in plan.kernels for stage in kernel.stages]
    if difference.tensor is None:
        return blamed(plan, _stage_in(stages, difference.what), difference)
    output = f"{difference.what}, first at {difference.place}: {difference.found}, not {difference.expected}"
    for program in references:
        reference = _right(program, subject, failure)
        if reference is not None:
            outcome = _traced(subject.program, failure, failure.backwards)
            found = first_difference(stages, outcome, reference, failure.trial.tower)
            if found is not None:
                stage, moved = found
                return blamed(plan, stage, evolve(moved, case=difference.case, output=output))
            break
    return blamed(plan, _writer(plan, stages, difference.tensor), difference)


def _traced(program: Program, failure: Failure, backwards: bool) -> Outcome:
    trial = failure.trial
    draws = [(trial.tower, trial.values)]
    (outcome,) = run_field(program, draws, trial.situation, backwards=backwards, tracing=True)
    return outcome


def _right(program: Program, subject: Subject, failure: Failure) -> Outcome | None:
    """The reference's trace, if the reference computes the operator on this trial."""
    if program.depth > failure.trial.tower.depth:
        return None
    outcome = _traced(program, failure, False)
    difference = compare(failure.trial.situation.call.operator, failure.case, failure.trial, outcome)
    return outcome if difference is None and not outcome.division else None


def first_difference(
    stages: list[PlannedStage], outcome: Outcome, reference: Outcome, tower: Tower
) -> tuple[PlannedStage, Difference] | None:
    """Kernel by kernel, in each step by step in the reference's order, in each step stage by stage."""
    order = {stage.tensor: place for place, stage in reversed(list(enumerate(stages)))}
    makers = {stage.tensor: stage for stage in reversed(stages)}
    ours, theirs = _by_place(outcome.records, stages), _by_place(reference.records, stages)
    ran = list(dict.fromkeys(record.traced.kernel for record in outcome.records))
    steps: dict[tuple, list[tuple]] = {}
    for key in theirs:
        if key in ours and key[0] in order:
            steps.setdefault((ran.index(ours[key].traced.kernel), key[1]), []).append(key)
    for kernel, at in sorted(steps, key=lambda step: (step[0], -len(step[1]), step[1])):
        for key in sorted(steps[kernel, at], key=lambda key: order[key[0]]):
            found = _differs(ours[key], theirs[key], tower)
            if found is not None:
                where, expected, got = found
                stage = makers[key[0]]
                named = dict(at) | dict(zip(stage.indices, where, strict=False))
                what = f"`{key[0]}` is wrong"
                return stage, Difference(what, "", stage.name, key[0], named, expected, got)
    return None


def _by_place(records: tuple[Record, ...], stages: list[PlannedStage]) -> Traces:
    """By tensor and indices in scope; a buffer of a scope without indices, or met twice, keeps its first entry. Memory
    that a plan gives to one tensor after the other holds that of the stage which wrote to it last."""
    found: Traces = {}
    for record in records:
        traced = record.traced
        stage = _stage_of(stages, traced.writer) if traced.writer else None
        tensor = SCOPE.sub("", traced.tensor) if stage is None else stage.tensor
        found.setdefault((tensor, tuple(sorted(record.at)), traced.begins), record)
    return found


def _stage_of(stages: list[PlannedStage], block: str) -> PlannedStage | None:
    """The stage of an sblock, or of what scheduling split off it."""
    found = [s for s in stages if block == s.name or block.startswith(f"{s.name}_")]
    return max(found, key=lambda s: len(s.name), default=None)


def _differs(ours: Record, theirs: Record, tower: Tower) -> tuple[tuple[int, ...], str, str] | None:
    if ours.values.shape != theirs.values.shape:
        return None
    taint = np.uint32(TAINT)
    # elements that the reference never wrote mean nothing
    wrong = (ours.values != theirs.values) & (theirs.values & taint == 0)
    if not wrong.any():
        return None
    where = tuple(int(x) for x in np.argwhere(wrong)[0])
    expected = _plain(int(theirs.values[where]), theirs.traced.level, tower)
    got = int(ours.values[where])
    return where, expected, "unwritten" if got & int(taint) else _plain(got, ours.traced.level, tower)


def _plain(montgomery: int, level: int, tower: Tower) -> str:
    p = tower.primes[level]
    return str(montgomery * pow(1 << 32, -1, p) % p)


def _stage_in(stages: list[PlannedStage], sentence: str) -> PlannedStage | None:
    """The stage that a fault's sentence names, split parts included."""
    for stage in sorted(stages, key=lambda s: -len(s.name)):
        if f"stage `{stage.name}`" in sentence or f"stage `{stage.name}_" in sentence:
            return stage
    return None


def _writer(plan: Plan, stages: list[PlannedStage], port: str) -> PlannedStage | None:
    views: Mapping = plan.operator.views
    return next((s for s in stages if s.tensor in views and views[s.tensor].port == port), None)


def blamed(plan: Plan, stage: PlannedStage | None, difference: Difference) -> Difference:
    """With the lines of rule and operator behind the stage."""
    if stage is None:
        return difference
    rule = None
    for kernel in plan.point.kernels:
        home = kernel.homes.get(stage.tensor)
        rule = rule or (kernel.computations[stage.name].span if stage.name in kernel.computations else None)
        rule = rule or (home.span if home is not None else None)
    return evolve(difference, stage=stage.name, span=rule, operator_span=stage.span)
