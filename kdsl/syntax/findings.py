"""What is wrong in one declaration, collected as it is found."""

from __future__ import annotations

from attrs import define, field

from kdsl.source.diagnostic import Diagnostic, Edit, Label
from kdsl.source.span import Origin, Span

MOST = 1000  # of one file


@define(eq=False)
class Findings:
    """Diagnostics whose offsets count from `origin`; at most one begins at a character."""

    origin: Origin
    items: list[Diagnostic] = field(factory=list)
    _starts: set[int] = field(factory=set)

    @property
    def full(self) -> bool:
        return len(self.items) >= MOST

    def span(self, start: int, stop: int) -> Span:
        return Span(self.origin, start, max(start, stop))

    def report(
        self, code: str, where: tuple[int, int], message: str, label: str = "", help: str | tuple[str,
        ...] = (), *,
        labels: tuple[tuple[int, int, str], ...] = (), edit: tuple[int, int, str, str] | None = None,
        safe: bool = False, observed: str | None = None, required: str | None = None,
    ) -> None:  # fmt: skip
        """`where` and what begins each label and `edit` are offsets; `edit` ends in text and title."""
        start, stop = where
        if start in self._starts or self.full:
            return
        self._starts.add(start)
        edits = (Edit(self.span(edit[0], edit[1]), edit[2], edit[3], safe),) if edit else ()
        self.items.append(
            Diagnostic(
                code, message, self.span(start, stop), label=label, edits=edits, observed=observed,
                required=required,
                labels=tuple(Label(self.span(a, b), text) for a, b, text in labels),
                help=(help,) if isinstance(help, str) else help,
            )
        )  # fmt: skip
