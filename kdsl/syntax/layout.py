"""Where a newline ends an item. `Layout` is the token filter between Lark's lexer and Lark's parser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lark import Token

CONTINUES = frozenset(
    {"LBRACE", "_NL", "COMMA", "COMPARE", "SIGN", "TIMES", "AND", "OR", "EQUAL", "THEN", "ELSE"}
)
OPENING = frozenset({"LPAR", "LSQB"})
CLOSING = frozenset({"RPAR", "RSQB"})


class Layout:
    """Drops newlines that end nothing and adds the one that a closing brace leaves out."""

    always_accept = ("_NL", "RBRACE")

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        depth, last = 0, "LBRACE"
        for token in stream:
            kind = token.type
            if kind in OPENING:
                depth += 1
            elif kind in CLOSING:
                depth = max(0, depth - 1)
            elif kind == "_NL":
                if depth or last in CONTINUES:
                    continue
            elif kind == "RBRACE" and last not in ("LBRACE", "_NL"):
                yield type(token).new_borrow_pos("_NL", "\n", token)
            last = kind
            yield token
