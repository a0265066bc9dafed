"""One declaration's tokens to its node, going on after each mistake.

A mistake is repaired where one token more, less or other lets the line go on; else the item that holds it is
dropped and the parse goes on at the next. Either way the rest of the declaration is still read.
"""

from __future__ import annotations

from attrs import define, field

from kdsl.source.diagnostic import Diagnostic
from kdsl.source.span import Origin, Span
from kdsl.syntax.findings import Findings
from kdsl.syntax.layout import CLOSING, CONTINUES, OPENING
from kdsl.syntax.machine import DEEPEST, Machine
from kdsl.syntax.nodes import Comment, Node
from kdsl.syntax.tokens import INVALID, LINE, UNCLOSED, Token, tokenize

MOST = 100  # errors reported of one declaration
REPAIRS = 8  # repairs of one item: each reads it again
WRONG = (INVALID, UNCLOSED)
HEADERS = {
    "operator": "operator {0} {{", "target": "target {0} {{", "instruction": "instruction {0} {{",
    "tactic": "tactic {0}() {{", "rule": "rule {0} schedules {0} on {0} {{",
}  # fmt: skip


@define(eq=False)
class Declared:
    """What became of one piece of text: one declaration, or none; `whole` if there was no mistake in it."""

    origin: Origin
    text: str
    nodes: tuple[Node, ...]
    comments: tuple[Comment, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = field(default=())

    @property
    def whole(self) -> bool:
        return not self.diagnostics


def read_declaration(text: str, origin: Origin, indent: int = 0) -> Declared:
    """The declaration that `text` is; it lies at `origin`, `indent` characters into its line."""
    from kdsl.syntax.balance import balance

    findings = Findings(origin)
    tokens, comments = tokenize(text)
    if "//" in text or "/*" in text or any(token.kinds[0] in WRONG for token in tokens):
        from kdsl.syntax.lexical import clean

        tokens = clean(tokens, text, findings)
    tokens = balance(tokens, text, indent, findings)
    nodes = ()
    if tokens:
        tokens.append(Token((LINE,), "\n", len(text), len(text)))
        nodes = _Reading(Machine(tokens, origin), text, findings).read()
    kept = tuple(Comment(Span(origin, start, stop), text[start:stop]) for start, stop in comments)
    found = tuple(sorted(findings.items, key=lambda d: (d.span.start, d.code)))
    return Declared(origin, text, nodes, kept, found)


@define(eq=False)
class _Reading:
    machine: Machine
    text: str
    findings: Findings
    _repairs: int = 0
    _repaired_item: int = -1

    def read(self) -> tuple[Node, ...]:
        machine = self.machine
        position: int | None = 0
        while position is not None and len(self.findings.items) < MOST:
            stopped = machine.run(position)
            if stopped is None:
                return self._nodes()
            if machine.deep is not None:
                self._deep()
                position = self._skip(stopped)
            else:
                position = self._advised(stopped)
        return ()

    def _nodes(self) -> tuple[Node, ...]:
        found = self.machine.finish()
        if found is None and not self.findings.items:
            from kdsl.syntax.teach import advise

            advise(self.machine, len(self.machine.tokens) - 1, self.text, self.findings)
        return tuple(found or ())

    def _deep(self) -> None:
        start = self.machine.deep
        self.machine.deep = None
        self.findings.report(
            "E019", (start, start + 1), f"this expression is nested more than {DEEPEST} levels deep",
            label="too deep", required=f"at most {DEEPEST} levels", help="name a part of it in `define`",
        )  # fmt: skip

    def _advised(self, stopped: int) -> int | None:
        """Report the error at token `stopped`; where to go on."""
        from kdsl.syntax.teach import advise

        machine, before = self.machine, len(self.findings.items)
        advice = advise(machine, stopped, self.text, self.findings)
        if advice is None:
            return self._skip(stopped)
        if isinstance(advice, int):
            return self._skip(advice)
        if machine.item != self._repaired_item:
            self._repaired_item, self._repairs = machine.item, 0
        self._repairs += 1
        if self._repairs > REPAIRS or len(self.findings.items) == before:
            return self._skip(stopped)
        machine.tokens[advice.at : advice.at + advice.count] = advice.tokens
        return stopped if advice.at >= stopped else machine.restart()

    def _skip(self, position: int) -> int | None:
        """Drop the item that holds `position`; the index of the token where the next begins."""
        machine = self.machine
        if not machine.frames:
            return self._header(position)
        depth, brackets = 0, len([b for b in machine.brackets if b < position])
        tokens = machine.tokens
        if tokens[position].kinds[0] == LINE:
            brackets = 0
        machine.restart()
        while position < len(tokens):
            kind = tokens[position].kinds[0]
            if kind == "LBRACE":
                depth, brackets = depth + 1, 0
            elif kind == "RBRACE":
                brackets = 0
                if depth == 0:
                    return position
                depth -= 1
            elif kind in OPENING:
                brackets += 1
            elif kind in CLOSING:
                brackets = max(0, brackets - 1)
            elif (
                kind == LINE
                and depth == 0
                and not brackets
                and tokens[position - 1].kinds[0] not in CONTINUES
            ):
                machine.item = position + 1
                return position + 1
            position += 1
        return None

    def _header(self, position: int) -> int | None:
        """Put a right header in place of a wrong one, so that the block after it is read."""
        machine = self.machine
        tokens, item = machine.tokens, machine.item
        brace = next((i for i in range(item, len(tokens)) if tokens[i].kinds[0] == "LBRACE"), None)
        header = HEADERS.get(tokens[item].text) if item < len(tokens) else None
        if brace is None or header is None or position > brace + 1:
            return None
        name = tokens[item + 1].text if tokens[item + 1].kinds[-1] == "NAME" else "x"
        where = tokens[item]
        made = [Token(t.kinds, t.text, where.start, where.stop) for t in tokenize(header.format(name))[0]]
        if tokens[item : brace + 1] == made:
            return None
        tokens[item : brace + 1] = made
        return machine.restart()
