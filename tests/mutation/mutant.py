"""A mutant: a subject's text with one thing changed, named by its operator and its place."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from attrs import field, frozen

LEVELS = {
    "rule": "the text of a rule and of its tactics",
    "mathematics": "the graph of an operator",
    "program": "generated CUDA and its launch, scheduled TIR",
    "contract": "machine code against its contract",
    "harmless": "edits that keep the meaning",
}


@frozen
class Edit:
    """Characters from `start` to `end` replaced by `new`."""

    start: int
    end: int
    new: str


Edits = tuple[Edit, ...]


@frozen
class Mutant:
    """`subject` names a text, `place` counts the operator's places in it.

    `launch` changes numbers of a launch, or the promises of a contract.
    """

    level: str
    operator: str
    subject: str
    place: int
    line: int
    edits: Edits = ()
    launch: Mapping[str, object] = field(factory=dict)
    old: str = ""
    new: str = ""

    @property
    def name(self) -> str:
        return f"{self.level}/{self.subject}/{self.operator}/{self.place}"

    @property
    def change(self) -> str:
        """One line that says what became what."""
        if self.launch:
            return ", ".join(
                f"{key} {value:+d}" if isinstance(value, int) else f"{key} = {value}"
                for key, value in self.launch.items()
            )
        return f"{short(self.old)} -> {short(self.new) or '(nothing)'}"

    def digest(self, text: str) -> str:
        """Changes when the subject's text or the edit does: a log entry of an older text is judged anew."""
        parts = (text, repr(self.edits), repr(sorted(self.launch.items())))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def short(text: str, most: int = 100) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 25]} ... {text[-20:]}"


def applied(text: str, edits: Iterable[Edit]) -> str:
    for edit in sorted(edits, key=lambda e: e.start, reverse=True):
        text = text[: edit.start] + edit.new + text[edit.end :]
    return text


# An operator: a subject's text in, one tuple of edits for each place out.
Operator = Callable[[str], Iterator[Edits]]


def mutants_of(level: str, subject: str, text: str, operators: Mapping[str, Operator]) -> Iterator[Mutant]:
    """Every operator at every place; two operators that make the same text give it once."""
    seen = {text}
    for name, operator in operators.items():
        place = 0
        for edits in operator(text):
            changed = applied(text, edits)
            if changed in seen:
                continue
            seen.add(changed)
            place += 1
            first, last = min(e.start for e in edits), max(e.end for e in edits)
            shown = [e for e in edits if e.start != e.end] or list(edits)
            yield Mutant(
                level,
                name,
                subject,
                place,
                text.count("\n", 0, first) + 1,
                tuple(edits),
                old=text[first:last],
                new=changed[first : last + len(changed) - len(text)]
                if len(shown) > 1 or first == last
                else shown[0].new,
            )


def each(pattern: str, new: str | Callable[[re.Match], str | None], group: int | str = 0) -> Operator:
    """The operator that replaces `group` of every match; a callable may leave a match alone with None."""
    compiled = re.compile(pattern, re.MULTILINE)

    def operator(text: str) -> Iterator[Edits]:
        for found in compiled.finditer(text):
            replaced = new(found) if callable(new) else found.expand(new)
            if replaced is not None:
                yield (Edit(found.start(group), found.end(group), replaced),)

    return operator


def every_of(*operators: Operator) -> Operator:
    def operator(text: str) -> Iterator[Edits]:
        for one in operators:
            yield from one(text)

    return operator
