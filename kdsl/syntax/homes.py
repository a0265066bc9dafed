"""Where a section that stands in the wrong block belongs, as far as the text after it says."""

from __future__ import annotations

from attrs import frozen

from kdsl.syntax.here import Here
from kdsl.syntax.tokens import LINE, Token


@frozen
class Section:
    """A section of a kernel further down: the token that begins it, and the names that its lines settle."""

    keyword: Token
    names: frozenset[str]


def home(here: Here) -> tuple[str, Token | None]:
    """What to do with the section at `here`, which belongs in a kernel, if there is one kernel that may take it.

    With the section of that kernel that settles the same names, if it has one.
    """
    kernels = [i for i in range(here.position, _end(here.tokens, here.position)) if _begins(here.tokens, i, "kernel")]
    if len(kernels) != 1 or kernels[0] + 1 >= len(here.tokens):
        return "", None
    kernel = f"kernel `{here.tokens[kernels[0] + 1].text}`"
    moved = section(here.tokens, here.position)
    stop = _end(here.tokens, kernels[0] + 1, inside=True)
    found = [section(here.tokens, i) for i in range(kernels[0], stop) if _begins(here.tokens, i, moved.keyword.text)]
    same = [s for s in found if moved.names & s.names]
    if not same:
        return f"move it into {kernel}", None
    names = ", ".join(f"`{name}`" for name in sorted(moved.names & same[0].names))
    there = f"{kernel} has {names} in its own `{moved.keyword.text}`"
    if moved.names <= same[0].names:
        return f"{there}: remove this one", same[0].keyword
    return f"{there}: move in what it has not", same[0].keyword


def section(tokens: list[Token], at: int) -> Section:
    """The section whose keyword is token `at`: of each line, the names before its `:`."""
    names: set[str] = set()
    line: list[str] | None = []
    for token in tokens[at + 1 : _end(tokens, at + 1, inside=True)]:
        if token.kinds[0] in (LINE, "LBRACE") or token.text == ";":
            line = []
        elif token.text == ":" and line is not None:
            names.update(line)
            line = None
        elif line is not None and token.kinds[-1] == "NAME":
            line.append(token.text)
    return Section(tokens[at], frozenset(names))


def _begins(tokens: list[Token], at: int, keyword: str) -> bool:
    before = tokens[at - 1].kinds[0] if at else LINE
    return tokens[at].text == keyword and (before in (LINE, "LBRACE", "RBRACE") or tokens[at - 1].text == ";")


def _end(tokens: list[Token], at: int, inside: bool = False) -> int:
    """The `}` that closes the block around token `at`; with `inside`, the block that opens next after it."""
    depth = 0 if not inside else -1
    for index in range(at, len(tokens)):
        kind = tokens[index].kinds[0]
        depth += (kind == "LBRACE") - (kind == "RBRACE")
        if kind == "RBRACE" and depth < 0:
            return index
    return len(tokens)
