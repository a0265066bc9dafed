"""What became of a mutant: the stage that rejected it, or what is known about one that nothing rejected."""

from __future__ import annotations

from attrs import frozen

# In the order in which kdsl comes to them.
STAGES = {
    "check": "`kdsl check` refuses the text",
    "plan": "the plan is refused, with the line of the rule",
    "schedule": "TVM refuses a schedule step, reported as a diagnostic",
    "internal": "an exception that is no diagnostic: no code is made, and it is a defect, listed below",
    "compiler": "the generated text does not compile: no code, no verdict",
    "contract": "a clause of `ensure` does not hold, so no bundle is written",
    "emulator": "the emulator has a finding: a race, a missing wait, an access out of bounds, ...",
    "acceptance": "the results on the emulator are outside of the acceptance",
    "trial": "the results of the compiled CPU code are outside of the acceptance",
    "calls": "rejected by a later one of the calls that it is run on; code for a GPU by `kdsl lower` itself",
    "prove": "the proof over finite fields is refused",
}
EQUIVALENT, FALSE_ACCEPT = "equivalent", "false accept"


@frozen
class Outcome:
    """`stage` is one of STAGES for a rejected mutant. An accepted one is equivalent or a false accept.

    `reason` says why it is equivalent, `detail` what was found, in a line.
    """

    stage: str = ""
    detail: str = ""
    reason: str = ""
    same_output: bool | None = None
    same_code: bool | None = None

    @property
    def accepted(self) -> bool:
        return not self.stage

    @property
    def verdict(self) -> str:
        if self.stage:
            return "rejected"
        return EQUIVALENT if self.reason else FALSE_ACCEPT
