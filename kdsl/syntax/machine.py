"""The LALR(1) automaton: tokens in, nodes out, able to stop at a wrong token and to go on after a repair."""

from __future__ import annotations

from functools import lru_cache

from attrs import define, field

from kdsl.source.span import Origin, Span
from kdsl.syntax.build import Build
from kdsl.syntax.layout import CLOSING, CONTINUES, OPENING
from kdsl.syntax.tables import END, tables
from kdsl.syntax.tokens import LINE, Token

DEEPEST = 100  # levels of nodes below a declaration; consumers of a tree may recurse


@lru_cache(maxsize=1)
def _productions() -> tuple[tuple, ...]:
    rows = []
    for p in tables().productions:
        build = getattr(Build, p.method, None) if p.method else None
        plain = not p.absent and len(p.keep) == p.size and all(not s and not a for _, s, a in p.keep)
        rows.append((p.left, p.size, build, p.unwrap, p.keep, p.absent, plain))
    return tuple(rows)


@define(eq=False)
class Frame:
    """An open `{`: the height of the stack after it, and the tokens that opened it."""

    height: int
    token: int
    item: int  # index of the first token of the item that the brace belongs to


@define(eq=False)
class Machine:
    """One parse. Stacks of states, values and extents are parallel; `position` is the next token."""

    tokens: list[Token]
    origin: Origin
    states: list[int] = field(init=False)
    values: list = field(factory=lambda: [None], init=False)
    starts: list[int] = field(factory=lambda: [-1], init=False)
    stops: list[int] = field(factory=lambda: [-1], init=False)
    depths: list[int] = field(factory=lambda: [0], init=False)
    frames: list[Frame] = field(factory=list, init=False)
    brackets: list[int] = field(factory=list, init=False)
    last: str = field(default="LBRACE", init=False)
    item: int = field(default=0, init=False)
    deep: int | None = field(default=None, init=False)

    build: Build = field(init=False)

    def __attrs_post_init__(self):
        self.states = [tables().start]
        self.build = Build(self.origin)

    def run(self, position: int) -> int | None:
        """Consume tokens from `position`; the index of the first that does not fit, or None at the end."""
        tokens, actions = self.tokens, tables().actions
        states, values, starts, stops = self.states, self.values, self.starts, self.stops
        reduce, brackets = self._reduce, self.brackets
        size = len(tokens)
        while position < size:
            token = tokens[position]
            kinds = token.kinds
            if kinds[0] == LINE and (brackets or self.last in CONTINUES):
                position += 1
                if self.item == position - 1:
                    self.item = position
                continue
            ends = kinds[0] == "RBRACE" and self.last not in ("LBRACE", LINE)
            if ends and not self.shift(Token((LINE,), "\n", token.start, token.start), position):
                return position
            row = actions[states[-1]]
            for kind in kinds:
                if kind in row:
                    break
            else:
                return position
            code = row[kind]
            while code < 0:
                reduce(-1 - code)
                code = actions[states[-1]].get(kind)
                if code is None:
                    return position
            if self.deep is not None:
                return position
            states.append(code)
            values.append(token)
            starts.append(token.start)
            stops.append(token.stop)
            self.depths.append(0)
            self._shifted(kind, position)
            position += 1
        return None

    def shift(self, token: Token, position: int) -> bool:
        """Feed one token that may not be in the text; False, with reductions done, if it does not fit."""
        actions = tables().actions
        kind = next((k for k in token.kinds if k in actions[self.states[-1]]), None)
        if kind is None:
            return False
        code = actions[self.states[-1]][kind]
        while code < 0:
            self._reduce(-1 - code)
            code = actions[self.states[-1]].get(kind)
            if code is None:
                return False
        self._push(code, token, token.start, token.stop, 0)
        self._shifted(kind, position)
        return True

    def finish(self) -> list | None:
        """The declarations read, once all tokens are consumed; None if something is still open."""
        data = tables()
        while self.states[-1] != data.end:
            code = data.actions[self.states[-1]].get(END)
            if code is None or code >= 0:
                return None
            self._reduce(-1 - code)
        return self.values[-1]

    def _shifted(self, kind: str, position: int) -> None:
        self.last = kind
        if kind == LINE:
            self.item = position + 1
        elif kind == "LPAR" or kind == "LSQB":
            self.brackets.append(position)
        elif kind == "RPAR" or kind == "RSQB":
            if self.brackets:
                self.brackets.pop()
        elif kind == "LBRACE":
            self.frames.append(Frame(len(self.states), position, self.item))
            self.item = position + 1
        elif kind == "RBRACE" and self.frames:
            self.item = self.frames.pop().item

    def _push(self, state: int, value, start: int, stop: int, depth: int) -> None:
        self.states.append(state)
        self.values.append(value)
        self.starts.append(start)
        self.stops.append(stop)
        self.depths.append(depth)

    def _reduce(self, number: int) -> None:
        left, size, build, unwrap, keep, absent, plain = _productions()[number]
        states, values, starts, stops, depths = self.states, self.values, self.starts, self.stops, self.depths
        if size == 1 and (unwrap or build is None):
            # One symbol: only the state changes, and a value that its parent will splice becomes a list.
            del states[-1]
            states.append(tables().gotos[states[-1]][left])
            if not unwrap and not (keep and keep[0][1]):
                values[-1] = [values[-1]] if keep else []
            return
        if size:
            children, start, stop = values[-size:], starts[-size], stops[-1]
            depth = max(depths[-size:])
            del states[-size:], values[-size:], starts[-size:], stops[-size:], depths[-size:]
        else:
            children, depth = [], 0
            start = stop = stops[-1]
        if not plain:
            kept = None
            for index, spliced, before in keep:
                if before:
                    kept = (kept or []) + [None] * before
                if spliced:
                    kept = children[index] if kept is None else kept + children[index]
                elif kept is None:
                    kept = [children[index]]
                else:
                    kept.append(children[index])
            children = kept if kept is not None else []
            if absent:
                children = children + [None] * absent
        if build is None:
            value = children
        elif unwrap and len(children) == 1:
            value = children[0]
        else:
            value = build(self.build, Span(self.origin, start, stop), children)
            depth += 1
            if depth > DEEPEST:
                self.deep = start
        self._push(tables().gotos[states[-1]][left], value, start, stop, depth)

    # ---- after an error ----
    def accepted(self) -> frozenset[str]:
        """The terminals that may come next, tried one by one."""
        row = tables().actions[self.states[-1]]
        return frozenset(kind for kind in row if step(list(self.states), (kind,)))

    def trial(self, tokens: list[Token], base: list[int] | None = None) -> int:
        """How many of these tokens would fit next, or after the states of `base`; nothing is built."""
        states, last, depth = list(self.states), self.last, len(self.brackets)
        if base is not None:
            states, last, depth = base, LINE, 0
        for count, token in enumerate(tokens):
            kinds = token.kinds
            if kinds[0] == LINE and (depth or last in CONTINUES):
                continue
            if kinds[0] == "RBRACE" and last not in ("LBRACE", LINE) and not step(states, (LINE,)):
                return count
            last = step(states, kinds)
            if not last:
                return count
            depth = max(0, depth + (last in OPENING) - (last in CLOSING))
        return len(tokens)

    def item_height(self) -> int:
        """The height of the stack where the current item began: after the brace and the items before."""
        height = self.frames[-1].height if self.frames else 1
        if len(self.states) > height and self._collects(height):
            height += 1
        return height

    def _collects(self, height: int) -> bool:
        """Whether the state at `height` was reached over the items of the block that opens below it."""
        below, state = self.states[height - 1], self.states[height]
        return any("_star_" in left and target == state for left, target in tables().gotos[below].items())

    def restart(self) -> int:
        """Forget the item begun; the index of its first token."""
        self.cut(self.item_height())
        self.brackets.clear()
        self.last = LINE
        return self.item

    def cut(self, height: int) -> None:
        """Drop what was begun after `height`."""
        for stack in (self.states, self.values, self.starts, self.stops, self.depths):
            del stack[height:]


def step(states: list[int], kinds: tuple[str, ...]) -> str:
    """Move `states` over one token; the terminal it was taken as, or nothing."""
    data = tables()
    actions, gotos, productions = data.actions, data.gotos, data.productions
    row = actions[states[-1]]
    kind = next((k for k in kinds if k in row), None)
    while kind is not None:
        code = actions[states[-1]].get(kind)
        if code is None:
            return ""
        if code >= 0:
            states.append(code)
            return kind
        production = productions[-1 - code]
        if production.size:
            del states[-production.size :]
        states.append(gotos[states[-1]][production.left])
    return ""
