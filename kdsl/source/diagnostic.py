"""A finding as data. Text, JSON, SARIF and annotations are renderings of this one object."""

from __future__ import annotations

from enum import Enum

from attrs import evolve, frozen

from kdsl.source.span import Span


class Severity(str, Enum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Evidence(str, Enum):
    """How a statement is known, strongest first. `UNKNOWN` is never a pass."""

    PROVED = "proved"
    FIELD = "field"
    BINARY = "binary"
    SIMULATED = "simulated"
    MEASURED = "measured"
    UNKNOWN = "unknown"


@frozen
class Label:
    """Another place involved, and its part in the finding."""

    span: Span
    text: str


@frozen
class Edit:
    """Replace `span` by `replacement`. Safe: the meaning the author wrote is kept."""

    span: Span
    replacement: str
    title: str
    safe: bool = False


@frozen
class Diagnostic:
    """One finding. `observed` and `required` are short texts with units; `help` says what to do."""

    code: str
    message: str
    span: Span
    severity: Severity = Severity.ERROR
    label: str = ""
    labels: tuple[Label, ...] = ()
    observed: str | None = None
    required: str | None = None
    evidence: Evidence | None = None
    notes: tuple[str, ...] = ()
    help: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()

    def with_(self, **changes) -> Diagnostic:
        return evolve(self, **changes)

    @property
    def order(self) -> tuple:
        return (self.span.path, self.span.first, self.code, self.message)
