"""A text into its top-level declarations, without parsing them.

In a text whose braces balance, a declaration ends at the brace that closes it. In one whose braces do not, it
ends where a line begins, without indentation, with the keyword of the next: one missing brace then spoils one
declaration.
"""

from __future__ import annotations

import re

from attrs import field, frozen

DECLARATIONS = ("edition", "expect", "instruction", "operator", "rule", "tactic", "target", "use")
LINES = ("edition", "use")  # the declarations without braces

_SPACE = re.compile(r"[ \t\r\f\n;\ufeff]+")
_COMMENT = re.compile(r"#[^\n]*")
_WORD = re.compile(r"[A-Za-z_][\w.]*")
_MARK = re.compile(r'"""[\s\S]*?"""|"""|"[^"\n]*"?|#[^\n]*|[{}\n;]')
_NEXT = re.compile(r"[ \t]*(" + "|".join(DECLARATIONS) + r")[ \t]+[\w.\"]")
_START = re.compile(r"\n(?=(?:" + "|".join(DECLARATIONS) + r")[ \t]+[\w.\"])")


@frozen
class Piece:
    """Characters [start, stop) hold one declaration; `crowded` if the one before ends on the same line."""

    start: int
    stop: int
    indent: int = 0
    crowded: bool = False


@frozen
class Split:
    pieces: tuple[Piece, ...]
    comments: tuple[tuple[int, int], ...]  # those outside of the pieces
    balanced: bool = field(default=True)


def split(text: str) -> Split:
    """The pieces of a text, in order; every character that is neither space nor comment is in one."""
    found = _scan(text, _by_braces)
    return found if found.balanced else _scan(text, _by_lines)


def _scan(text: str, end_of) -> Split:
    pieces, comments = [], []
    position, size, balanced, line_used = 0, len(text), True, -1
    while position < size:
        match = _SPACE.match(text, position)
        if match:
            if line_used >= 0 and ("\n" in match.group() or ";" in match.group()):
                line_used = -1
            position = match.end()
            continue
        match = _COMMENT.match(text, position)
        if match:
            comments.append(match.span())
            position = match.end()
            continue
        stop, whole = end_of(text, position)
        balanced = balanced and whole
        if not balanced and end_of is _by_braces:
            return Split((), (), False)
        line = text.rfind("\n", 0, position) + 1
        indent = position - line if not text[line:position].strip() else 0
        pieces.append(Piece(position, stop, indent, line_used >= 0))
        position = line_used = stop
    return Split(tuple(pieces), tuple(comments), balanced)


def _by_braces(text: str, begin: int) -> tuple[int, bool]:
    """Where the declaration at `begin` stops, and whether its braces and quotes pair up."""
    word = _WORD.match(text, begin)
    plain = word is not None and word.group() in LINES
    depth, last = 0, begin
    for match in _MARK.finditer(text, begin):
        mark = match.group()
        if mark == "{":
            depth += 1
        elif mark == "}":
            depth -= 1
            if depth <= 0:
                return match.end(), depth == 0
        elif mark == '"""':
            return len(text), False
        elif depth == 0 and mark in "\n;" and (plain or _NEXT.match(text, match.end())):
            return _trim(text, begin, match.start()), True
        last = match.end()
    return _trim(text, begin, max(last, len(text))), depth == 0


def _by_lines(text: str, begin: int) -> tuple[int, bool]:
    """Where the next line that begins a declaration starts, doc strings that pair up respected."""
    word = _WORD.match(text, begin)
    if word is not None and word.group() in LINES:
        return _by_braces(text, begin)
    position = begin
    while True:
        start = _START.search(text, position)
        if start is None:
            return _trim(text, begin, len(text)), True
        quotes = _open_doc(text, position, start.start())
        if quotes is None:
            return _trim(text, begin, start.start()), True
        close = text.find('"""', start.end())
        if close < 0 or _looks_like_code(text, start.end()):
            return _trim(text, begin, start.start()), True
        position = close + 3


def _open_doc(text: str, begin: int, stop: int) -> int | None:
    """The offset of a doc string that is open at `stop`, if one is."""
    for match in _MARK.finditer(text, begin, stop):
        if match.group() == '"""':
            return match.start()
    return None


def _looks_like_code(text: str, position: int) -> bool:
    """Whether the line is a header and not prose: it ends in a brace."""
    line = text[position : (text.find("\n", position) + 1 or len(text) + 1) - 1]
    return line.split("#")[0].rstrip().endswith("{") or line.startswith(LINES)


def _trim(text: str, begin: int, stop: int) -> int:
    """`stop` without the space before it."""
    while stop > begin and text[stop - 1] in " \t\r\f\n;\ufeff":
        stop -= 1
    return stop
