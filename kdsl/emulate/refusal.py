"""What the emulator does not know how to run. A refusal is an answer: the verdict is then `unknown`, which is
no pass.
"""

from __future__ import annotations

from attrs import field, frozen


@frozen
class Refusal:
    """`line` is of the CUDA text, None where the whole text is meant."""

    what: str
    remedy: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = "" if self.line is None else f"line {self.line}: "
        return f"{place}{self.what}" + (f"; {self.remedy}" if self.remedy else "")


@frozen
class CannotEmulate(Exception):
    """Raised inside this package only; `emulate` answers with the refusal."""

    refusal: Refusal


@frozen
class RunnerFault(Exception):
    """The runner itself failed, not the kernel: a fault of kdsl or of this machine."""

    output: str = field(repr=False)

    def __str__(self) -> str:
        return f"the emulator's runner failed: {self.output.strip()[:2000]}"
