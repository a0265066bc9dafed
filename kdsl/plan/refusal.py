"""Why a plan cannot be derived: a value with the place and the remedy."""

from __future__ import annotations

from attrs import field, frozen

from kdsl.source.diagnostic import Diagnostic
from kdsl.source.span import Span


@frozen
class PlanRefused(Exception):
    """The rule asks for what the compiler cannot derive."""

    code: str
    message: str
    span: Span = field(repr=False)
    observed: str | None = None
    required: str | None = None
    help: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.message

    @property
    def diagnostic(self) -> Diagnostic:
        return Diagnostic(
            self.code, self.message, self.span, observed=self.observed, required=self.required, help=self.help
        )
