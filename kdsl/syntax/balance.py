"""Braces that have no partner: found from the indentation, reported, and put right in the tokens."""

from __future__ import annotations

from kdsl.syntax.build import BLOCKS
from kdsl.syntax.findings import Findings
from kdsl.syntax.layout import CONTINUES
from kdsl.syntax.tables import tables
from kdsl.syntax.tokens import LINE, Token

DEEPEST = 32  # braces inside braces; the language needs six
HEADER_COLON = (
    "a header ends with `{`, not with `:`", "write `{`",
    "a block stands between `{` and `}`; indentation has no meaning",
)  # fmt: skip
MOST = 10  # repairs of one declaration, after which the rest of it is left out


def balance(tokens: list[Token], text: str, indent: int, findings: Findings) -> list[Token]:
    """Tokens whose braces pair up; nothing if they are nested without measure."""
    depth = deepest = 0
    early = None
    for index, token in enumerate(tokens):
        kind = token.kinds[0]
        if kind == "LBRACE":
            depth += 1
            deepest = max(deepest, depth)
        elif kind == "RBRACE":
            depth -= 1
            if depth <= 0 and early is None:
                early = index
    if deepest > DEEPEST:
        start = [t for t in tokens if t.kinds[0] == "LBRACE"][0].start
        findings.report(
            "E019", (start, start + 1), f"braces are nested {deepest} deep", label="the outermost",
            observed=str(deepest), required=f"at most {DEEPEST}", help="the language needs six levels",
        )  # fmt: skip
        return []
    if early is not None and len(findings.items) >= MOST:
        return tokens[: early + (depth >= 0)]
    if depth < 0 and len(findings.items) < MOST:
        opened = _opened_by_indentation(tokens, text, indent, findings)
        if opened is None:
            opened = _extra_by_indentation(tokens, text, indent, findings)
        if opened is not None:
            return balance(opened, text, indent, findings)
    if early is not None and any(t.kinds[0] != LINE for t in tokens[early + 1 :]):
        return _closed_early(tokens, text, early, indent, findings)
    if depth > 0:
        return _Unclosed(tokens, text, indent, findings, depth).run()
    return tokens


def title(tokens: list[Token], at: int, first: int = 0) -> str:
    """How to name the block that the brace at `at` opens: its keyword and its name, if it has one."""
    head = at
    while head > first and tokens[head - 1].kinds[0] not in (LINE, "LBRACE", "RBRACE"):
        head -= 1
    words = [t.text for t in tokens[head : min(at, head + 2)] if t.kinds[-1] == "NAME"]
    if not words:
        return "this block"
    if len(words) == 2 and words[1] not in tables().literals:
        return f"{words[0]} `{words[1]}`"
    return f"`{words[0]}`"


# ---- a brace too many --------------------------------------------------------------------------------------


def _closed_early(tokens, text, early: int, indent: int, findings: Findings) -> list[Token]:
    opener = next((i for i, t in enumerate(tokens) if t.kinds[0] == "LBRACE"), None)
    if opener is None or opener > early:
        return _stray(tokens, early, findings, indent, text)
    header_end = next((i for i, t in enumerate(tokens) if t.kinds[0] == LINE), len(tokens))
    if (
        header_end < opener
        and tokens[header_end + 1].kinds[0] != "LBRACE"
        and not _continues(tokens, header_end)
    ):
        return _no_opening(tokens, text, header_end, indent, findings)
    after = early + 1
    while after < len(tokens) and tokens[after].kinds[0] == LINE:
        after += 1
    if tokens[after].kinds[0] == "RBRACE":
        return _stray(tokens, after, findings, indent, text)
    closed, following = tokens[early], tokens[after]
    name = title(tokens, opener)
    findings.report(
        "E003", (closed.start, closed.stop), f"this `}}` closes {name} too early: its sections go on below",
        label=f"closes {name}", labels=(
            (tokens[opener].start, tokens[opener].stop, "opened here"),
            (following.start, following.stop, "still part of it?"),
        ),
        help="remove this `}`, or the one before it that is too many",
        edit=(closed.start, closed.stop, "", "remove this `}`"),
    )  # fmt: skip
    return balance(tokens[:early] + tokens[early + 1 :], text, indent, findings)


def _opened_by_indentation(tokens, text, indent: int, findings: Findings) -> list[Token] | None:
    """A line that is followed by a deeper one opens a block, so its `{` is missing."""
    begin = 0
    for index, token in enumerate(tokens[:-1]):
        if token.kinds[0] != LINE:
            continue
        after = tokens[index + 1]
        deeper = column_of(text, after, indent) > column_of(text, tokens[begin], indent)
        if _closes_unopened(tokens[begin:index]):
            return _no_opening(tokens, text, begin + 1, indent, findings)
        if index > begin and deeper and tokens[index - 1].kinds[0] not in CONTINUES:
            return _no_opening(tokens, text, index, indent, findings)
        begin = index + 1
    return None


def _closes_unopened(line: list[Token]) -> bool:
    """Whether a line begins with the keyword of a section and closes it, but never opened it."""
    if len(line) < 2 or line[0].text not in BLOCKS.values() or line[1].kinds[0] == "LBRACE":
        return False
    depth = 0
    for token in line:
        depth += (token.kinds[0] == "LBRACE") - (token.kinds[0] == "RBRACE")
        if depth < 0:
            return True
    return False


def _extra_by_indentation(tokens, text, indent: int, findings: Findings) -> list[Token] | None:
    """A `}` that begins a line deeper than the header it would close is one too many."""
    opened: list[tuple[int, int]] = []
    column, first = indent, True
    for index, token in enumerate(tokens):
        kind = token.kinds[0]
        if first:
            column = column_of(text, token, indent)
        if kind == "LBRACE":
            opened.append((index, column))
        elif kind == "RBRACE" and opened:
            opener, header = opened.pop()
            if first and column > header:
                name = title(tokens, opener)
                findings.report(
                    "E003", (token.start, token.stop), "this `}` is one too many: it lines up with no `{`",
                    label=f"would close {name}", help="remove it", labels=(
                        (tokens[opener].start, tokens[opener].stop, f"{name} begins here"),
                    ),
                    edit=(token.start, token.stop, "", "remove this `}`"),
                )  # fmt: skip
                return tokens[:index] + tokens[index + 1 :]
        first = kind == LINE
    return None


def column_of(text: str, token: Token, indent: int) -> int:
    """How far a token stands from the start of its line."""
    start = text.rfind("\n", 0, token.start) + 1
    return token.start - start + (indent if start == 0 else 0)


def _continues(tokens: list[Token], line: int) -> bool:
    return line > 0 and tokens[line - 1].kinds[0] == "COMMA"


def _stray(tokens, at: int, findings: Findings, indent: int, text: str) -> list[Token]:
    token = tokens[at]
    findings.report(
        "E003", (token.start, token.stop), "this `}` closes nothing", label="no `{` is open here",
        help="remove it, or find the `{` that is missing above", edit=(token.start, token.stop, "",
        "remove this `}`"),
    )  # fmt: skip
    rest = [t for t in tokens[at + 1 :] if t.kinds[0] not in ("RBRACE", LINE)]
    if not rest:
        return tokens[:at]
    return balance(tokens[:at] + tokens[at + 1 :], text, indent, findings)


def _no_opening(tokens, text, header_end: int, indent: int, findings: Findings) -> list[Token]:
    last = tokens[header_end - 1]
    name = title(tokens, header_end)
    if last.kinds[0] == "COLON":
        findings.report(
            "E012", (last.start, last.stop), *HEADER_COLON, edit=(last.start, last.stop, " {", "write `{`")
        )
        brace = Token(("LBRACE",), "{", last.start, last.stop)
        return balance([*tokens[: header_end - 1], brace, *tokens[header_end:]], text, indent, findings)
    findings.report(
        "E004", (last.stop, last.stop), f"`{{` is missing after the header of {name}",
        label="expected `{` here",
        help="end the header line with `{`", edit=(last.stop, last.stop, " {", "open the block"), safe=True,
    )  # fmt: skip
    brace = Token(("LBRACE",), "{", last.stop, last.stop)
    return balance(tokens[:header_end] + [brace] + tokens[header_end:], text, indent, findings)


# ---- a brace too few ---------------------------------------------------------------------------------------


class _Unclosed:
    """Walks the lines: one no deeper than an open block's header shows that the block was to end."""

    def __init__(self, tokens, text, indent, findings, missing):
        self.tokens, self.text, self.findings, self.missing = tokens, text, findings, missing
        self.indent = indent
        self.open: list[
            list
        ] = []  # token index of the brace, indentation of its line, whether lines inside are flat
        self.fresh = False  # no line has begun since the last brace
        self.out: list[Token] = []

    def run(self) -> list[Token]:
        column, first = self.indent, True
        for index, token in enumerate(self.tokens):
            kind = token.kinds[0]
            if first:
                column = column_of(self.text, token, self.indent)
                self._dedent(column, kind == "RBRACE", token)
            first = kind == LINE
            if kind == "LBRACE":
                self.open.append([index, column, False])
                self.fresh = True
            elif kind == "RBRACE" and self.open:
                self.open.pop()
            self.out.append(token)
        self._end()
        return self.out

    def _dedent(self, column: int, closes: bool, token: Token) -> None:
        if self.fresh and self.open and not closes and column <= self.open[-1][1]:
            self.open[-1][2] = True
        self.fresh = False
        while self.missing and len(self.open) > 1:
            index, indent, flat = self.open[-1]
            if flat or not (indent > column if closes else indent >= column):
                return
            self.open.pop()
            self.missing -= 1
            line = self.text.rfind("\n", 0, token.start) + 1
            end = len(self.text[: max(line - 1, 0)].rstrip())
            brace = self.tokens[index]
            name = title(self.tokens, index)
            self.findings.report(
                "E002", (brace.start, brace.stop), f"the `{{` of {name} is never closed", label="opened here",
                labels=((end, end, "`}` expected after this, by the indentation"),),
                help=f"add `}}` at the end of {name}", edit=(line, line, " " * indent + "}\n",
                "close the block"),
            )  # fmt: skip
            self.out.append(Token(("RBRACE",), "}", end, end))
            self.out.append(Token((LINE,), "\n", end, end))

    def _end(self) -> None:
        if not self.open:
            return
        end = len(self.text)
        index = self.open[0][0]
        brace = self.tokens[index]
        name = title(self.tokens, index)
        count = len(self.open)
        message = f"the `{{` of {name} is never closed"
        if count > 1:
            message += f", nor {'is' if count == 2 else 'are'} {count - 1} inside it"
        self.findings.report(
            "E002", (brace.start, brace.stop), message, label="opened here",
            labels=tuple(
                (self.tokens[i].start, self.tokens[i].stop, "opened here too") for i, _, _ in self.open[1:4]
            ),
            help="add `}` at the end" if count == 1 else f"add {count} `}}` at the end",
            edit=(end, end, "".join("\n" + " " * column + "}" for _, column, _ in reversed(self.open)),
            "close it"),
        )  # fmt: skip
        for _ in self.open:
            self.out.append(Token((LINE,), "\n", end, end))
            self.out.append(Token(("RBRACE",), "}", end, end))
