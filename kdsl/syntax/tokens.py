"""Text to tokens, by one regular expression made of the grammar's terminals.

A keyword is a keyword only where the parser accepts it, so a token carries every terminal that its text may
be; the automaton takes the first that its state knows.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from kdsl.syntax.tables import tables

LINE = "_NL"
INVALID = "INVALID"
UNCLOSED = "UNCLOSED"  # a `"` or a doc string's quotes without their partner


class Token(NamedTuple):
    """`kinds` are the terminals it may be, best first; offsets count from the start of the text given."""

    kinds: tuple[str, ...]
    text: str
    start: int
    stop: int


@lru_cache(maxsize=1)
def _scanner():
    data = tables()
    patterns = dict(data.patterns)
    punctuation = sorted((t for t in data.literals if not t[0].isalpha()), key=lambda t: (-len(t), t))
    groups = [(name, pattern) for name, pattern in data.patterns if not name.startswith("__IGNORE")]
    after_doc = 1 + [name for name, _ in groups].index("DOC")
    groups.insert(after_doc, (UNCLOSED, r'"""|"[^"\n]*(?![^\n])'))
    groups.append(("PUNCTUATION", "|".join(map(re.escape, punctuation))))
    groups.append((INVALID, r"[^ \t\r\f\n]"))
    assert {"NAME", "COMMENT", LINE} <= patterns.keys()
    skip = "|".join(pattern for name, pattern in data.patterns if name.startswith("__IGNORE"))
    body = "|".join(f"(?P<{name}>{pattern})" for name, pattern in groups)
    return re.compile(f"(?:{skip})?(?:{body})")


class _Kinds(dict):
    """Text of a word or sign to the terminals it may be."""

    def __init__(self, group: str):
        super().__init__()
        self.group = group
        self.literals = tables().literals

    def __missing__(self, text: str) -> tuple[str, ...]:
        exact = self.literals.get(text, ())
        if self.group == "PUNCTUATION":
            kinds = exact
        elif self.group == "REDUCER":
            kinds = ("REDUCER", *exact, "NAME")
        elif self.group == "NAME":
            kinds = (*exact, "NAME")
        else:
            kinds = (self.group,)
        if self.group in ("PUNCTUATION", "NAME") and len(self) < 50_000:
            self[text] = kinds
        return kinds


@lru_cache(maxsize=1)
def _kinds() -> dict[str, _Kinds]:
    return {group: _Kinds(group) for group in _scanner().groupindex}


def tokenize(text: str) -> tuple[list[Token], list[tuple[int, int]]]:
    """The tokens of a text, and where its comments are; every character but spaces is in one."""
    kinds, tokens, comments = _kinds(), [], []
    append, make = tokens.append, Token._make
    for match in _scanner().finditer(text):
        group = match.lastgroup
        start, stop = match.span(group)
        if group == "COMMENT":
            comments.append((start, stop))
            continue
        word = match.group(group)
        append(make((kinds[group][word], word, start, stop)))
    return tokens, comments
