"""C++ text at the level of brackets, strings and comments: all that the translation has to know of the
grammar.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

OPENING, CLOSING = "([{", ")]}"
_SKIPPED = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def without_comments(text: str) -> str:
    """Comments blanked out, every other character and every line at its place."""

    def blank(match: re.Match) -> str:
        found = match[0]
        return re.sub(r"[^\n]", " ", found) if found.startswith("/") else found

    return _SKIPPED.sub(blank, text)


def code_positions(text: str, start: int = 0) -> Iterator[int]:
    """Positions of characters that stand in no string and no comment."""
    position = start
    while position < len(text):
        skipped = _SKIPPED.match(text, position) if text[position] in "/\"'" else None
        if skipped:
            position = skipped.end()
            continue
        yield position
        position += 1


def closing(text: str, start: int) -> int:
    """The position of the bracket that closes the one at `start`. Raises ValueError if none does."""
    depth = 0
    for position in code_positions(text, start):
        if text[position] in OPENING:
            depth += 1
        elif text[position] in CLOSING:
            depth -= 1
            if depth == 0:
                return position
    raise ValueError(f"nothing closes the bracket at {start}")


def split(text: str, separator: str) -> list[str]:
    """`text` at each `separator` that stands in no bracket and no string."""
    parts, depth, last = [], 0, 0
    for position in code_positions(text):
        if text[position] in OPENING:
            depth += 1
        elif text[position] in CLOSING:
            depth -= 1
        elif depth == 0 and text[position] == separator:
            parts.append(text[last:position])
            last = position + 1
    return [*parts, text[last:]]


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
