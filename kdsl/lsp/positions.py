"""Characters of a text to the positions of the protocol, and back.

The protocol counts columns in UTF-16 code units unless client and server agree on another unit; a
`SourceFile` counts characters.
"""

from __future__ import annotations

from lsprotocol import types

from kdsl.source.span import SourceFile, Span

UTF8, UTF16, UTF32 = "utf-8", "utf-16", "utf-32"


def units(text: str, encoding: str) -> int:
    """How many code units of `encoding` a text takes."""
    if text.isascii() or encoding == UTF32:
        return len(text)
    if encoding == UTF8:
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text) + sum(character > "\uffff" for character in text)


def position(source: SourceFile, offset: int, encoding: str = UTF16) -> types.Position:
    line, column = source.location(offset)
    before = source.line(line)[: column - 1]
    return types.Position(line - 1, units(before, encoding))


def offset(source: SourceFile, place: types.Position, encoding: str = UTF16) -> int:
    """The character at a position; the nearest one if the text has no such position."""
    starts = source.line_starts
    if place.line < 0:
        return 0
    if place.line >= len(starts):
        return len(source.text)
    line = source.line(place.line + 1)
    if line.isascii() or encoding == UTF32:
        return starts[place.line] + max(0, min(place.character, len(line)))
    seen = 0
    for index, character in enumerate(line):
        if seen >= place.character:
            return starts[place.line] + index
        seen += units(character, encoding)
    return starts[place.line] + len(line)


def range_between(source: SourceFile, first: int, last: int, encoding: str = UTF16) -> types.Range:
    return types.Range(position(source, first, encoding), position(source, last, encoding))


def range_of(span: Span, encoding: str = UTF16) -> types.Range:
    return range_between(span.source, span.first, span.last, encoding)
