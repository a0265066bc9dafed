"""Diagnostics as text: what, where with the source, and what to do.

error[E302] shared-over-budget: kernel `fused` needs 273152 bytes
  --> rules/fused.kds:12:5
   |
12 |     place {
   |     ^^^^^ 15 buffers
   = observed: 273152 bytes
   = help: `ring 2` on u0
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable
from typing import TextIO

from attrs import frozen

from kdsl.source.codes import slug
from kdsl.source.diagnostic import Diagnostic, Severity
from kdsl.source.render import ordered
from kdsl.source.span import SourceFile, Span

WIDTH = 100  # columns of source shown of one line
TAB = 4
GAP = 1  # lines between two excerpts that are shown rather than left out
TALL = 6  # lines of one span, beyond which its middle is left out

RED, YELLOW, CYAN, BLUE, GREEN, BOLD = "31;1", "33;1", "36;1", "34;1", "32;1", "1"
COLORS = {Severity.ERROR: RED, Severity.WARNING: YELLOW, Severity.NOTE: CYAN}


def wants_color(stream: TextIO, choice: bool | None = None) -> bool:
    """`choice` if there is one; else whether `stream` is a terminal and NO_COLOR is not set."""
    if choice is not None:
        return choice
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(getattr(stream, "isatty", lambda: False)())


def render_text(diagnostics: Iterable[Diagnostic], *, color: bool = False) -> str:
    """All diagnostics, an empty line between two; nothing for none."""
    paint = _paint if color else _plain
    return "".join(_one(diagnostic, paint) + "\n" for diagnostic in ordered(diagnostics))


def summary(diagnostics: Iterable[Diagnostic]) -> str:
    """`2 errors, 1 warning`, or nothing."""
    found = list(diagnostics)
    parts = []
    for severity in (Severity.ERROR, Severity.WARNING, Severity.NOTE):
        count = sum(diagnostic.severity is severity for diagnostic in found)
        if count:
            parts.append(f"{count} {severity.value}{'s' * (count != 1)}")
    return ", ".join(parts)


def _plain(text: str, style: str) -> str:
    return text


def _paint(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if text else text


@frozen
class _Mark:
    """Columns [first, last) of one line, underlined; `text` stands after it where its span ends."""

    line: int
    first: int
    last: int
    text: str
    primary: bool


def _one(diagnostic: Diagnostic, paint) -> str:
    style = COLORS[diagnostic.severity]
    head = f"{diagnostic.severity.value}[{diagnostic.code}]"
    name = slug(diagnostic.code)
    title = f"{' ' + name if name else ''}: {_safe(diagnostic.message)}"
    lines = [paint(head, style) + paint(title, BOLD)]
    width = _gutter(diagnostic)
    lines += _excerpts(diagnostic, width, paint)
    for word, texts in _statements(diagnostic):
        for text in texts:
            lines.append(_statement(word, text, width, paint))
    return "\n".join(lines) + "\n"


def _statements(diagnostic: Diagnostic):
    if diagnostic.observed is not None:
        yield "observed", (diagnostic.observed,)
    if diagnostic.required is not None:
        yield "required", (diagnostic.required,)
    if diagnostic.evidence is not None:
        yield "evidence", (diagnostic.evidence.value,)
    yield "note", diagnostic.notes
    yield "help", diagnostic.help


def _statement(word: str, text: str, width: int, paint) -> str:
    head = " " * width + " = "
    indent = "\n" + " " * (len(head) + len(word) + 2)
    body = indent.join(_safe(line) for line in text.split("\n"))
    return (
        " " * width
        + " "
        + paint("=", BLUE)
        + " "
        + paint(word + ":", GREEN if word == "help" else BOLD)
        + f" {body}"
    )


def _gutter(diagnostic: Diagnostic) -> int:
    spans = [diagnostic.span, *(label.span for label in diagnostic.labels)]
    return len(str(max(_last_line(span) for span in spans)))


def _last_line(span: Span) -> int:
    last = max(span.first, span.last - 1)
    return span.source.location(last)[0]


# ---- excerpts ----------------------------------------------------------------------------------------------


def _excerpts(diagnostic: Diagnostic, width: int, paint) -> list[str]:
    """The place of the finding, then those of its labels in other files."""
    files: dict[int, tuple[SourceFile, list[tuple[Span, str, bool]]]] = {}
    marks = [(diagnostic.span, diagnostic.label, True)]
    marks += [(label.span, label.text, False) for label in diagnostic.labels]
    for span, text, primary in marks:
        files.setdefault(id(span.source), (span.source, []))[1].append((span, text, primary))
    lines = []
    for source, group in files.values():
        lead = group[0][0]
        arrow = "-->" if group[0][2] else ":::"
        place = _safe(source.path) + (f":{lead.line}:{lead.column}" if source.text else "")
        lines.append(" " * width + paint(arrow, BLUE) + f" {place}")
        if source.text:
            lines += _source(source, group, width, paint, COLORS[diagnostic.severity])
    return lines


def _source(source: SourceFile, group, width: int, paint, style: str) -> list[str]:
    marks = [mark for span, text, primary in group for mark in _marks(source, span, text, primary)]
    by_line: dict[int, list[_Mark]] = {}
    for mark in marks:
        by_line.setdefault(mark.line, []).append(mark)
    bar = paint("|", BLUE)
    lines = [" " * width + " " + bar]
    previous = None
    for number in sorted(by_line):
        if previous is not None and number - previous > GAP + 1:
            lines.append(paint("...", BLUE))
        elif previous is not None:
            for between in range(previous + 1, number):
                shown = _Shown(source.line(between), [])
                lines.append(f"{paint(str(between).rjust(width), BLUE)} {bar} {shown.text}".rstrip())
        shown = _Shown(source.line(number), by_line[number])
        lines.append(f"{paint(str(number).rjust(width), BLUE)} {bar} {shown.text}".rstrip())
        for text in shown.underlines(paint, style):
            lines.append(f"{' ' * width} {bar} {text}")
        previous = number
    return lines


def _marks(source: SourceFile, span: Span, text: str, primary: bool) -> list[_Mark]:
    """One mark a line; of a tall span only the first and the last lines."""
    first_line, first_column = source.location(span.first)
    last_line, last_column = source.location(max(span.first, span.last - 1))
    last_column += 1 if span.last > span.first else 0
    if first_line == last_line:
        return [_Mark(first_line, first_column - 1, max(last_column - 1, first_column), text, primary)]
    numbers = list(range(first_line, last_line + 1))
    if len(numbers) > TALL:
        numbers = [first_line, last_line]
    found = []
    for number in numbers:
        line = source.line(number)
        begin = first_column - 1 if number == first_line else len(line) - len(line.lstrip())
        end = last_column - 1 if number == last_line else len(line.rstrip())
        if end > begin:
            found.append(_Mark(number, begin, end, "", primary))
    if not found:
        return [_Mark(first_line, first_column - 1, first_column, text, primary)]
    end = found[-1]
    return [*found[:-1], _Mark(end.line, end.first, end.last, text, primary)]


class _Shown:
    """One line as a terminal shows it: tabs opened, wide characters counted, cut if it is long."""

    def __init__(self, line: str, marks: list[_Mark]):
        cells, column = [], 0
        self.columns = [0]
        for character in line:
            cell = _cell(character, column)
            cells.append(cell)
            column += _cells(cell)
            self.columns.append(column)
        self.marks = sorted(marks, key=lambda mark: (mark.first, mark.last))
        self.shift, tail = 0, ""
        start, stop = 0, len(cells)
        if column > WIDTH:
            start, stop = self._window(len(cells))
            self.shift = self.columns[start] - (3 if start else 0)
            tail = "..." if stop < len(cells) else ""
        self.text = ("..." if start else "") + "".join(cells[start:stop]) + tail
        self.limit = _cells(self.text)

    def _window(self, size: int) -> tuple[int, int]:
        """Which characters of a long line are shown: those around the first mark."""
        anchor = min(self.marks[0].first if self.marks else 0, size)
        start = anchor
        while start > 0 and self.columns[anchor] - self.columns[start - 1] <= WIDTH // 3:
            start -= 1
        if self.columns[min(anchor, size)] <= WIDTH // 2:
            start = 0
        stop = start
        while stop < size and self.columns[stop + 1] - self.columns[start] <= WIDTH:
            stop += 1
        return start, stop

    def _column(self, index: int) -> int:
        last = len(self.columns) - 1
        column = self.columns[index] if index <= last else self.columns[last] + index - last
        return min(max(column - self.shift, 0), max(self.limit, column - self.shift if index >= last else 0))

    def underlines(self, paint, style: str) -> list[str]:
        """The marks, one row for those that do not overlap, then the texts without room on it."""
        row: list[tuple[int, int, _Mark]] = []
        rows: list[str] = []
        for mark in self.marks:
            first = self._column(mark.first)
            last = max(self._column(mark.last), first + 1)
            last = min(last, max(self.limit, first + 1))
            if row and first < row[-1][1]:
                rows.append(self._row(row, paint, style))
                row = []
            row.append((first, last, mark))
        return [line for text in [*rows, self._row(row, paint, style)] for line in text.split("\n")]

    def _row(self, row, paint, style: str) -> str:
        text, position = "", 0
        for first, last, mark in row:
            sign = "^" if mark.primary else "-"
            text += " " * (first - position) + paint(sign * (last - first), style if mark.primary else BLUE)
            position = last
        lines = [text]
        *earlier, (_, _, final) = row
        if final.text:
            lines[0] += " " + paint(_safe(final.text), style if final.primary else BLUE)
        for first, _, mark in reversed(earlier):
            if mark.text:
                lines.append(" " * first + paint(_safe(mark.text), style if mark.primary else BLUE))
        return "\n".join(lines)


def _cell(character: str, column: int) -> str:
    """What is printed for one character: never a control character."""
    if character == "\t":
        return " " * (TAB - column % TAB)
    if character.isprintable():
        return character
    return f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}"


def _cells(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def _safe(text: str) -> str:
    """A text without characters that move the cursor or change the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _cell(c, 0) for c in text)
