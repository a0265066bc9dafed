"""What a proof found, as data."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import asdict, field, frozen

from kdsl.source.diagnostic import Diagnostic, Evidence, Label
from kdsl.source.span import Span

FIELD, REJECTED, UNKNOWN = "field", "rejected", "unknown"
BOUND = 1e-18  # the chance of a false proof that a verdict may have
CODES = {REJECTED: "P101", UNKNOWN: "P102"}


@frozen
class CaseProof:
    """One call, proved: `bound` is the chance that a program that differs on it passes every trial."""

    name: str
    sizes: Mapping[str, int]
    trials: int
    degree: int
    bound: float


@frozen
class Difference:
    """Where a program first goes wrong. `at` are indices by name; `expected` and `found` are field
    elements, or words where there is no element. `stage` and `tensor` are None when no stage could be told
    apart."""

    what: str
    case: str
    stage: str | None = None
    tensor: str | None = None
    at: Mapping[str, int] = field(factory=dict)
    expected: str = ""
    found: str = ""
    output: str = ""
    code: str = ""  # the line of a generated text that it happens on
    span: Span | None = field(default=None, repr=False, eq=False)
    operator_span: Span | None = field(default=None, repr=False, eq=False)

    @property
    def place(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.at.items())


@frozen
class Proof:
    """The verdict on one program: `field`, `rejected` or `unknown`, and everything it rests on."""

    verdict: str
    subject: str
    cases: tuple[CaseProof, ...] = ()
    assumptions: tuple[str, ...] = ()
    trusted: tuple[str, ...] = ()
    difference: Difference | None = None
    obstacle: str = ""  # why the verdict is unknown
    remedy: str = ""
    obstacle_span: Span | None = field(default=None, repr=False, eq=False)
    seed: int = 0
    seconds: float = 0.0  # of the proof, or of the earlier one that is recalled
    digest: str = ""
    recalled: bool = False  # an equal program was proved before

    @property
    def proved(self) -> bool:
        return self.verdict == FIELD

    @property
    def bound(self) -> float:
        """The chance that any case was passed by a program that differs on it."""
        return sum(case.bound for case in self.cases)

    @property
    def trials(self) -> int:
        return sum(case.trials for case in self.cases)

    @property
    def found(self) -> str:
        """One line for a contract's `found` column."""
        if self.verdict == FIELD:
            return f"equal in {self.trials} trials on {len(self.cases)} shapes, false accept {self.bound:.0e}"
        if self.verdict == REJECTED:
            return explained(self.difference)
        return self.obstacle

    @property
    def document(self) -> dict:
        """For JSON: no spans, places as path:line."""
        found = {
            "verdict": self.verdict,
            "subject": self.subject,
            "evidence": Evidence.FIELD.value if self.proved else None,
            "bound": self.bound if self.proved else None,
            "trials": self.trials,
            "seconds": round(self.seconds, 3),
            "seed": self.seed,
            "recalled": self.recalled,
            "program": self.digest[:16],
            "assumptions": list(self.assumptions),
            "trusted": list(self.trusted),
            "cases": [asdict(case) for case in self.cases],
        }
        if self.difference is not None:
            d = self.difference
            found["difference"] = {
                "what": d.what,
                "case": d.case,
                "stage": d.stage,
                "tensor": d.tensor,
                "at": dict(d.at),
                "expected": d.expected,
                "found": d.found,
                "output": d.output,
                "code": d.code,
                "rule": located(d.span),
                "operator": located(d.operator_span),
            }
        if self.verdict == UNKNOWN:
            found |= {"obstacle": self.obstacle, "remedy": self.remedy, "place": located(self.obstacle_span)}
        return found

    def diagnostic(self, fallback: Span) -> Diagnostic | None:
        """The finding behind a verdict that is no proof, at the line of the rule or of the operator."""
        if self.verdict == FIELD:
            return None
        if self.verdict == UNKNOWN:
            return Diagnostic(
                CODES[UNKNOWN],
                f"{self.subject}: not proved, {self.obstacle}",
                self.obstacle_span or fallback,
                evidence=Evidence.UNKNOWN,
                help=(self.remedy,) if self.remedy else (),
            )
        d = self.difference
        labels = (Label(d.operator_span, "the stage's mathematics"),) if d.operator_span and d.span else ()
        return Diagnostic(
            CODES[REJECTED],
            f"{self.subject} does not compute the operator: {d.what}",
            d.span or d.operator_span or fallback,
            label=f"stage `{d.stage}`" if d.stage else "",
            labels=labels,
            observed=d.found or None,
            required=d.expected or None,
            evidence=Evidence.FIELD,
            notes=tuple(
                filter(
                    None,
                    (
                        f"in the text: {d.code}" if d.code else "",
                        f"first at {d.place}" if d.at else "",
                        d.output,
                        f"on the call: {d.case}",
                    ),
                )
            ),
        )


def located(span: Span | None) -> str | None:
    return f"{span.path}:{span.line}" if span is not None else None


def explained(difference: Difference) -> str:
    stage = f"stage `{difference.stage}`: " if difference.stage else ""
    place = f" at {difference.place}" if difference.at else ""
    return f"{stage}{difference.what}{place}"
