"""Text and places in it.

A `Span` is a half-open range of characters. Its offsets are relative to an `Origin`, the start of the
top-level declaration that holds it: editing one declaration moves the origins of those after it and leaves
every node alone.
"""

from __future__ import annotations

from bisect import bisect_right

from attrs import define, field, frozen


@frozen(eq=False)
class SourceFile:
    """One text. `path` is what messages print; `text` holds what was read, line ends included."""

    path: str
    text: str = field(repr=False)
    _cache: dict = field(factory=dict, init=False, repr=False)

    @property
    def line_starts(self) -> list[int]:
        starts = self._cache.get("starts")
        if starts is None:
            starts = [0]
            position = self.text.find("\n")
            while position >= 0:
                starts.append(position + 1)
                position = self.text.find("\n", position + 1)
            self._cache["starts"] = starts
        return starts

    def location(self, offset: int) -> tuple[int, int]:
        """Line and column of a character, both from 1."""
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of line `number` (from 1), without its end."""
        starts = self.line_starts
        if not 1 <= number <= len(starts):
            return ""
        stop = starts[number] if number < len(starts) else len(self.text)
        return self.text[starts[number - 1] : stop].rstrip("\r\n")


@define(eq=False)
class Origin:
    """Where a declaration starts. The only mutable part of a tree: moved when text before it changes."""

    source: SourceFile
    offset: int = 0


@frozen(order=False)
class Span:
    """Characters [start, stop) after an origin."""

    origin: Origin = field(repr=False)
    start: int
    stop: int

    @property
    def source(self) -> SourceFile:
        return self.origin.source

    @property
    def first(self) -> int:
        """Absolute offset of the first character."""
        return self.origin.offset + self.start

    @property
    def last(self) -> int:
        """Absolute offset after the last character."""
        return self.origin.offset + self.stop

    @property
    def path(self) -> str:
        return self.origin.source.path

    @property
    def line(self) -> int:
        return self.source.location(self.first)[0]

    @property
    def column(self) -> int:
        return self.source.location(self.first)[1]

    @property
    def text(self) -> str:
        return self.source.text[self.first : self.last]

    @classmethod
    def whole(cls, source: SourceFile) -> Span:
        return cls(Origin(source), 0, len(source.text))
