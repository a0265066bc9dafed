"""The calls that a mutant of generated code is run on: those that `kdsl lower` tries it on, always the same."""

from __future__ import annotations

from kdsl.driver.emulation import LoweredProgram
from kdsl.driver.rehearsal import takes
from kdsl.emulate.rehearsals import CALLS, IN_TURN, SIZES, Tried, rehearsals, same, stored, tiny

__all__ = ["SIZES", "SWITCHES", "Tried", "calls_of", "same", "stored", "tiny"]

SWITCHES = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True}


def calls_of(program: LoweredProgram) -> tuple[Tried, ...]:
    """The first kinds of which the rule takes any; the small ones all, for what it refuses its code may compute too."""
    for kinds in IN_TURN:
        calls = rehearsals(program.operator, program.settings, kinds=kinds)
        taken = tuple(tried for tried in calls if takes(program, tried))
        if taken:
            return calls if kinds is CALLS else taken
    return ()
