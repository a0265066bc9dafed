"""Code for a GPU run without one, before it is written into a bundle: on the emulator, against the oracle.

What `kdsl check` and the derivation prove is no guarantee for what TVM and the code generator made of it. Calls of
every kind that the rule takes (tails, rows without offsets, views, tensors that are not given, slots outside of the
pool, tiny rows) show misaligned accesses, races, elements that nobody wrote and wrong results. Evidence: simulated.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from attrs import frozen

from kdsl.contract.call import WrongCall, complete_call
from kdsl.contract.select import refusals_of
from kdsl.contract.verdict import Status, Verdict
from kdsl.driver.emulation import LoweredProgram
from kdsl.emulate.program import values
from kdsl.emulate.refusal import Refusal
from kdsl.emulate.rehearsals import CALLS, IN_TURN, Tried, rehearsals
from kdsl.emulate.run import emulate
from kdsl.lower.lowering import Lowering
from kdsl.plan.model import Plan
from kdsl.runtime.threads import thread_count
from kdsl.source.diagnostic import Evidence
from kdsl.validate import oracle
from kdsl.validate.acceptance import acceptance
from kdsl.validate.call import reference

CLAUSE = "calls on the emulator"
NEEDED = "nothing wrong, and results within the acceptance"
SECONDS = 30.0
log = logging.getLogger("kdsl.driver")


@frozen
class Rehearsal:
    """One call: what is wrong with it, or how exact its results are; why it could not be run."""

    call: str
    complaint: str = ""
    error: float = 0.0
    refusal: Refusal | None = None


def rehearsed(lowering: Lowering, seed: int | None = None) -> Iterator[Verdict]:
    """The verdict of every kind of call that the rule takes; nothing where the emulator does not know an instruction.

    The seed of the data is new each time unless it is given, so that no code can know it.
    """
    plan = lowering.plan
    if plan.operator.name not in CALLS:
        return
    done = []
    for one in runs(LoweredProgram(lowering), secrets.randbits(32) if seed is None else seed):
        if one.refusal is not None:
            log.warning("rule `%s` was not tried on the emulator: %s", plan.rule.name, one.refusal)
            return
        if one.complaint:
            yield verdict(plan, Status.FAILS, f"{one.call}: {one.complaint}")
            return
        done.append(one)
    if done:
        worst = max(one.error for one in done)
        yield verdict(plan, Status.HOLDS, f"{len(done)} calls, {worst:.2g} of the reference's rms")


def verdict(plan: Plan, status: Status, found: str) -> Verdict:
    return Verdict(CLAUSE, plan.rule.declaration.name.span, status, Evidence.SIMULATED, found, NEEDED)


def runs(program: LoweredProgram, seed: int) -> Iterator[Rehearsal]:
    """Every call that the rule takes, run and judged; larger ones where it takes none of the small ones."""
    sizes = program.lowering.plan.specialization.sizes
    for kinds in IN_TURN:
        calls = rehearsals(program.operator, program.settings, sizes, seed, kinds)
        taken = [tried for tried in calls if takes(program, tried)]
        if taken:
            yield run(program, taken[0])  # alone: it compiles what all of them run
            yield from side_by_side(program, taken[1:])
            return


def side_by_side(program: LoweredProgram, calls: Sequence[Tried]) -> Iterator[Rehearsal]:
    """The calls in their order, as many at a time as the machine has cores: each is a process of the emulator."""
    pool = ThreadPoolExecutor(thread_count())
    try:
        yield from pool.map(partial(run, program), calls)
    finally:
        pool.shutdown(cancel_futures=True)


def run(program: LoweredProgram, tried: Tried) -> Rehearsal:
    bound = program.bind(tried.call, tried.final_state)
    target = program.lowering.plan.target.name
    result = emulate(bound.launches, target=target, seed=tried.seed, seconds=SECONDS)
    if result.refusal is not None:
        return Rehearsal(tried.name, refusal=result.refusal)
    if result.verdict != "pass":
        return Rehearsal(tried.name, result.explain().splitlines()[0])
    copied = {name: np.copy(x) if isinstance(x, np.ndarray) else x for name, x in tried.judged.items()}
    o, state = oracle.decode(**copied) if program.operator == "kda.decode" else reference(copied)
    judged = acceptance(values(bound.o), values(bound.state), o, state if tried.final_state else bound.state)
    error = max(judged.o.rms_ratio, judged.final_state.rms_ratio if tried.final_state else 0.0)
    return Rehearsal(tried.name, "" if judged.accepted else judged.explain(), error)


def takes(program: LoweredProgram, tried: Tried) -> bool:
    """Whether the rule's requirements and the operator's laws let the call in; what nothing decides lets it in."""
    plan, operands = program.lowering.plan, program.operands(tried.call)
    operator, special = plan.operator, plan.specialization
    options = {name: value for name, value in special.options.items() if value is not None}
    options |= {name: v for name, v in operands.scalars.items() if name in operator.options and name in tried.call}
    present = {name: name in operands.arrays for name, port in operator.ports.items() if port.optional}
    try:
        call = complete_call(operator, operands.sizes, special.dtypes, options, present)
    except WrongCall:
        return False
    env = {**plan.settings, **call.env, **plan.point.choices, **plan.point.form}
    claims = (*operator.laws, *plan.rule.require)
    return not any(True for claim in claims for _ in refusals_of(plan.rule.name, claim, env, operator))
