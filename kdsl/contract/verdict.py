"""What became of a claim, and how that is known."""

from __future__ import annotations

from enum import Enum

from attrs import field, frozen

from kdsl.source.diagnostic import Evidence
from kdsl.source.span import Span


class Status(str, Enum):
    HOLDS = "holds"
    FAILS = "fails"
    UNKNOWN = "unknown"  # nothing decided it; never a pass
    PENDING = "pending"  # a GPU decides it: `kdsl validate`


@frozen
class Fact:
    """One number about a rule, a kernel or its code. `tool` names what gave it, with its version."""

    value: object
    unit: str = ""
    evidence: Evidence = Evidence.PROVED
    tool: str = ""


@frozen
class Verdict:
    """One clause of `ensure` or `measure` at one point of the choices."""

    clause: str
    span: Span = field(eq=False, repr=False)
    status: Status
    evidence: Evidence
    found: str = ""
    needed: str = ""
    kernel: str | None = None  # the kernel whose `ensure` it stands in
    note: str = ""
    tools: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return self.status is Status.HOLDS

    @property
    def told(self) -> str:
        """`holds (proved)`; of what nobody knows yet only `unknown` or `pending`."""
        known = f" ({self.evidence.value})" if self.evidence is not Evidence.UNKNOWN else ""
        return f"{self.status.value}{known}"


STRENGTH = list(Evidence)  # strongest first


def weakest(evidence: tuple[Evidence, ...]) -> Evidence:
    """A verdict is known no better than the weakest fact in it; arithmetic alone is a proof."""
    return max(evidence, key=STRENGTH.index, default=Evidence.PROVED)
