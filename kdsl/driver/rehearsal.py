"""Code for a GPU run once without one, before it is written into a bundle: on the emulator, against the oracle.

What `kdsl check` and the derivation prove is no guarantee for what TVM and the code generator made of it. One call with
tails, an empty sequence and one of a single token shows misaligned accesses, races, elements that nobody wrote and
wrong results. Evidence: simulated.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator

import numpy as np

from kdsl.contract.verdict import Status, Verdict
from kdsl.driver.emulation import OPERANDS, LoweredProgram
from kdsl.emulate import calls
from kdsl.emulate.program import Trial, try_program
from kdsl.lower.lowering import Lowering
from kdsl.source.diagnostic import Evidence

CLAUSE = "one call on the emulator"
NEEDED = "nothing wrong, and results within the acceptance"
SECONDS = 30.0
log = logging.getLogger("kdsl.driver")


def rehearsed(lowering: Lowering) -> Iterator[Verdict]:
    """The verdict of one call of the lowered rule; nothing where the emulator does not know an instruction of it."""
    plan = lowering.plan
    if plan.operator.name not in OPERANDS:
        return
    trial = tried(LoweredProgram(lowering), plan.target.name, secrets.randbits(32))
    if trial.emulation.refusal is not None:
        log.warning("rule `%s` was not tried on the emulator: %s", plan.rule.name, trial.emulation.refusal)
        return
    good = trial.verdict == "pass"
    found = result_text(trial) if good else complaint(trial)
    yield Verdict(CLAUSE, plan.rule.declaration.name.span, Status.HOLDS if good else Status.FAILS, Evidence.SIMULATED,
                  found, NEEDED)  # fmt: skip


def tried(program: LoweredProgram, target: str, seed: int) -> Trial:
    """A call drawn for the program's own settings; the seed is new each time, so that no code can know it."""
    rng, sizes = np.random.default_rng(seed), {**calls.SIZES, **program.lowering.plan.specialization.sizes}
    if program.operator == "kda.decode":
        call = calls.decode_call(rng, sizes, program.settings)
    else:
        call = calls.chunk_call(rng, sizes, calls.LENGTHS, program.settings)
    return try_program(program, call, target=target, seed=seed, seconds=SECONDS)


def complaint(trial: Trial) -> str:
    """The first finding, or what is wrong with the results."""
    if trial.emulation.verdict != "pass" or trial.acceptance is None:
        return trial.emulation.explain().splitlines()[0]
    return trial.acceptance.explain()


def result_text(trial: Trial) -> str:
    worst = max(trial.acceptance.o.rms_ratio, trial.acceptance.final_state.rms_ratio)
    return f"{worst:.2g} of the reference's rms"
