"""The place of a syntax error, and the questions that its explanation asks."""

from __future__ import annotations

from functools import cached_property, lru_cache

from attrs import frozen

from kdsl.syntax.balance import title
from kdsl.syntax.machine import Machine, step
from kdsl.syntax.tables import tables
from kdsl.syntax.tokens import LINE, Token, tokenize

AHEAD = 6  # tokens that must fit after a repair, or all to the end of the line
LONGEST = 200  # tokens of an item that a repair looks back over

CONTAINERS = {
    "operator": "operator x {", "target": "target x {", "instruction": "instruction x {",
    "tactic": "tactic x() {",
    "rule": "rule x schedules x on x {", "kernel": "rule x schedules x on x { kernel x computes x {",
    "part": "operator x { part x {",
}  # fmt: skip


@frozen
class Repair:
    """Replace `count` tokens from index `at`, then go on."""

    at: int
    count: int
    tokens: tuple[Token, ...] = ()


@frozen(slots=False)
class Here:
    """`position` is the token that does not fit; `item` the first token of the item that holds it."""

    machine: Machine
    position: int
    text: str

    @property
    def tokens(self) -> list[Token]:
        return self.machine.tokens

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    @property
    def item(self) -> int:
        return self.machine.item

    @cached_property
    def expected(self) -> frozenset[str]:
        return self.machine.accepted()

    def at(self, offset: int) -> Token | None:
        """The token `offset` after the wrong one, if there is one in the text."""
        index = self.position + offset
        return self.tokens[index] if 0 <= index < len(self.tokens) else None

    @property
    def previous(self) -> Token | None:
        return self.at(-1) if self.position else None

    @property
    def block(self) -> str:
        """The block that holds the item, as a message names it; empty outside of any."""
        frames = self.machine.frames
        return title(self.tokens, frames[-1].token, frames[-1].item) if frames else ""

    @property
    def keyword(self) -> str:
        """The keyword of the block that holds the item."""
        frames = self.machine.frames
        return self.tokens[frames[-1].item].text if frames else ""

    @cached_property
    def line_end(self) -> int:
        """Index of the token that ends the line of the wrong one."""
        index = self.position
        while index < len(self.tokens) and self.tokens[index].kinds[0] != LINE:
            index += 1
        return index

    def same_line(self) -> bool:
        """Whether the wrong token follows another on its line."""
        return self.previous is not None and "\n" not in self.text[self.previous.stop : self.token.start]

    def base(self) -> list[int]:
        """The states where the item began."""
        return self.machine.states[: self.machine.item_height()]

    def expected_at(self, index: int) -> frozenset[str]:
        """The terminals that might have stood at token `index` of this item."""
        if index == self.position:
            return self.expected
        states = self.base()
        for token in self.tokens[self.item : index]:
            if token.kinds[0] != LINE and not step(states, token.kinds):
                return frozenset()
        return frozenset(kind for kind in tables().actions[states[-1]] if step(list(states), (kind,)))

    def fits(self, at: int, count: int, *new: Token, ahead: int = AHEAD) -> bool:
        """Whether the line goes on for `ahead` tokens once `count` from `at` are replaced by `new`."""
        after = max(at + count, self.position)
        stop = after
        while stop < len(self.tokens) and stop < after + ahead:
            stop += 1
            if self.tokens[stop - 1].kinds[0] == LINE:
                break
        tail = self.tokens[at + count : stop]
        if at >= self.position:
            return self.machine.trial([*new, *tail]) == len(new) + len(tail)
        if at < self.item or self.position - self.item > LONGEST:
            return False
        sequence = [*self.tokens[self.item : at], *new, *tail]
        return self.machine.trial(sequence, self.base()) == len(sequence)


def made(text: str, like: Token | None = None, start: int = 0, stop: int = 0) -> Token:
    """A token that the text does not hold, placed where another is or at offsets."""
    if like is not None:
        start, stop = like.start, like.stop
    if text == "\n":
        return Token((LINE,), text, start, stop)
    return Token(tokenize(text)[0][0].kinds, text, start, stop)


@lru_cache(maxsize=1)
def sections() -> dict[str, tuple[str, ...]]:
    """Each keyword that begins an item, to the containers that accept it there."""
    data = tables()
    found: dict[str, list[str]] = {}
    for container, header in CONTAINERS.items():
        states = [data.start]
        for token in tokenize(header)[0]:
            step(states, token.kinds)
        for text in data.keywords:
            if any(kind != "NAME" and step(list(states), (kind,)) for kind in data.literals[text]):
                found.setdefault(text, []).append(container)
    return {text: tuple(containers) for text, containers in found.items()}


@lru_cache(maxsize=1)
def declarations() -> tuple[str, ...]:
    """The keywords that begin a declaration."""
    data = tables()
    return tuple(t for t in data.keywords if any(k in data.actions[data.start] for k in data.literals[t]))
