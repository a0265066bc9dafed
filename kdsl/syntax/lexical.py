"""Characters that begin no token, and comments and quotes of other languages: reported, then made good."""

from __future__ import annotations

import re

from kdsl.syntax.findings import Findings
from kdsl.syntax.tables import tables
from kdsl.syntax.tokens import INVALID, UNCLOSED, Token, tokenize

OPERATORS = {"&&": ("and", "AND"), "&": ("and", "AND"), "||": ("or", "OR"), "|": ("or", "OR"),
             "!": ("not", "NOT"),
             "^": ("**", None)}  # fmt: skip
LOOKALIKE = {
    "\u201c": '"', "\u201d": '"', "\u2018": '"', "\u2019": '"', "\u00d7": "*", "\u2212": "-", "\u2013": "-",
    "\u2014": "-", "\u2264": "<=", "\u2265": ">=", "\u2260": "==", "\u00b7": "*", "\u2026": "..",
    "\uff0c": ",",
    "\uff1a": ":", "\uff08": "(", "\uff09": ")", "\uff1b": ";", "\u03bc": "u", "\u00b5": "u",
}  # fmt: skip
LOOKALIKE["\u2260"] = "!="
INVISIBLE = {
    "\0": "NUL", "\u00a0": "no-break space", "\u200b": "zero-width space", "\u200c": "zero-width non-joiner",
    "\u200d": "zero-width joiner", "\u2060": "word joiner", "\ufeff": "byte order mark",
    "\u3000": "ideographic space",
    "\u202f": "narrow no-break space", "\x0b": "vertical tab", "\x85": "next line",
    "\u2028": "line separator",
}  # fmt: skip
_QUOTED = re.compile(r"'[^'\n]*'")
_PROSE = re.compile(r"[A-Za-z_]+[,.]?[ \t]+[A-Za-z_]|^[ \t]*$|^[ \t]*[=#/*-]{2}")
_JOINING = re.compile(r"\b(?:and|or|not|if|then|else|in|is|at|of|over|when|where|scan|default)\b")
_CODE_LINE = re.compile(r"[ \t]*(?:\}|#|$|[\w.]+[^\n]*\{|[\w., \[\]]+[ \t][:=][ \t])")


def clean(tokens: list[Token], text: str, findings: Findings) -> list[Token]:
    """The tokens without those that can be in no right text."""
    return _Cleaning(tokens, text, findings).run()


class _Cleaning:
    def __init__(self, tokens: list[Token], text: str, findings: Findings):
        self.tokens, self.text, self.findings = tokens, text, findings
        self.kept: list[Token] = []
        self.index = 0

    def run(self) -> list[Token]:
        while self.index < len(self.tokens):
            token = self.tokens[self.index]
            kind = token.kinds[0]
            if kind == UNCLOSED:
                self._unclosed(token)
            elif kind == INVALID:
                self._invalid(token)
            elif token.text == "/" and self.text[token.stop : token.stop + 1] in ("/", "*"):
                self._slash(token)
            else:
                self.kept.append(token)
                self.index += 1
        return self.kept

    def _pass(self, stop: int) -> None:
        """Go on at the first token that starts at or after `stop`; a token cut in two is read again."""
        while self.index < len(self.tokens) and self.tokens[self.index].stop <= stop:
            self.index += 1
        if self.index < len(self.tokens) and self.tokens[self.index].start < stop:
            tail = self.text[stop : self.tokens[self.index].stop]
            again = [Token(t.kinds, t.text, t.start + stop, t.stop + stop) for t in tokenize(tail)[0]]
            self.tokens[self.index : self.index + 1] = again

    def _line_end(self, start: int) -> int:
        end = self.text.find("\n", start)
        return len(self.text) if end < 0 else end

    # ---- quotes ----
    def _unclosed(self, token: Token) -> None:
        if token.text == '"""':
            self._open_doc(token)
            return
        body = token.text.rstrip()
        tail = re.search(r"[ \t]*[{}][ \t{}]*$", body)
        stop = token.start + (tail.start() if tail else len(body))
        self.findings.report(
            "E006", (token.start, stop), "this string is not closed on its line", label='no closing `"`',
            help='a string begins and ends with `"` on one line', edit=(stop, stop, '"', "close the string"),
        )  # fmt: skip
        self.kept.append(Token(("STRING",), self.text[token.start : stop] + '"', token.start, stop))
        self._pass(stop)

    def _open_doc(self, token: Token) -> None:
        stop = self._line_end(token.stop)
        line_stop = stop
        while stop < len(self.text) and not _CODE_LINE.match(self.text, stop + 1):
            stop = self._line_end(stop + 1)
        self.findings.report(
            "E006", (token.start, token.stop), 'this doc string is never closed: no second `"""` follows',
            label="opened here", help='end it with `"""`',
            edit=(line_stop, line_stop, '"""', "close the doc string at the end of its line"),
        )  # fmt: skip
        self.kept.append(Token(("DOC",), self.text[token.start : stop] + '"""', token.start, stop))
        self._pass(stop)

    # ---- characters ----
    def _invalid(self, token: Token) -> None:
        if token.text == "'":
            quoted = _QUOTED.match(self.text, token.start)
            if quoted:
                self._single_quotes(token.start, quoted.end())
                return
        run = self.index + 1
        while (
            run < len(self.tokens)
            and self.tokens[run].kinds[0] == INVALID
            and self.tokens[run].start == self.tokens[run - 1].stop
            and self.tokens[run].text != "'"
        ):
            run += 1
        start, stop = token.start, self.tokens[run - 1].stop
        found = self.text[start:stop]
        self.index = run
        if found in OPERATORS:
            self._operator(found, start, stop)
        elif found in LOOKALIKE:
            self._lookalike(found, start, stop)
        elif found.isalpha():
            self._word(start, stop)
        else:
            self._unknown(found, start, stop)

    def _single_quotes(self, start: int, stop: int) -> None:
        body = self.text[start + 1 : stop - 1]
        if not body and self.text.startswith("'''", start):
            return self._single_doc(start)
        self.findings.report(
            "E014", (start, stop), "strings are written in double quotes", label="single quotes",
            help=f'write `"{body}"`', edit=(start, stop, f'"{body}"', "use double quotes"),
            safe='"' not in body,
        )  # fmt: skip
        self.kept.append(Token(("STRING",), f'"{body}"', start, stop))
        self._pass(stop)

    def _single_doc(self, start: int) -> None:
        """A doc string in single quotes."""
        end = self.text.find("'''", start + 3)
        stop = end + 3 if end >= 0 else len(self.text)
        body = self.text[start + 3 : end if end >= 0 else stop]
        self.findings.report(
            "E014", (start, stop), "doc strings are written in double quotes", label="single quotes",
            help='write `"""` at both ends', edit=(start, stop, f'"""{body}"""', "use double quotes"),
            safe='"' not in body and end >= 0,
        )  # fmt: skip
        self.kept.append(Token(("DOC",), f'"""{body}"""', start, stop))
        self._pass(stop)

    def _operator(self, found: str, start: int, stop: int) -> None:
        right, kind = OPERATORS[found]
        spaced = right + " " if found == "!" else right
        self.findings.report(
            "E013", (start, stop), f"`{found}` is not an operator of this language", label=f"write `{right}`",
            help=f"replace `{found}` by `{right}`", edit=(start, stop, spaced, f"write `{right}`"), safe=True,
        )  # fmt: skip
        self.kept.append(Token((kind,) if kind else tables().literals[right], right, start, stop))

    def _lookalike(self, found: str, start: int, stop: int) -> None:
        right = LOOKALIKE[found]
        self.findings.report(
            "E007", (start, stop), f"`{found}` (U+{ord(found):04X}) is not `{right}`",
            label=f"meant `{right}`?",
            help=f"replace it by `{right}`; editors and web pages put such characters in",
            edit=(start, stop, right, f"write `{right}`"), safe=True,
        )  # fmt: skip
        if right == '"':
            end = self._line_end(stop)
            close = next(
                (i for i in range(stop, end) if LOOKALIKE.get(self.text[i], self.text[i]) == '"'), None
            )
            end = end if close is None else close + 1
            self.kept.append(Token(("STRING",), '"' + self.text[stop : end - 1] + '"', start, end))
            self._pass(end)
        elif right in tables().literals:
            self.kept.append(Token(tables().literals[right], right, start, stop))

    def _word(self, start: int, stop: int) -> None:
        """A name with letters of another alphabet: one name, one finding."""
        while self.kept and self.kept[-1].stop == start and self.kept[-1].kinds[-1] == "NAME":
            start = self.kept.pop().start
        while self.index < len(self.tokens) and self.tokens[self.index].start == stop:
            token = self.tokens[self.index]
            if not (token.kinds[-1] in ("NAME", "NUMBER") or token.text.isalpha()):
                break
            stop, self.index = token.stop, self.index + 1
        name = self.text[start:stop]
        self.findings.report(
            "E007", (start, stop), f"`{name}` has a letter that names cannot have", label="not a name here",
            help="names are made of the letters A to Z and a to z, digits, `_` and `.`",
        )  # fmt: skip
        self.kept.append(Token(("NAME",), name, start, stop))

    def _unknown(self, found: str, start: int, stop: int) -> None:
        first = found[0]
        if first in INVISIBLE:
            what = f"{INVISIBLE[first]} (U+{ord(first):04X})"
        elif first.isprintable():
            what = f"`{found if len(found) <= 8 else found[:8] + '...'}`"
        else:
            what = f"U+{ord(first):04X}"
        self.findings.report(
            "E007", (start, stop), f"{what} has no meaning here", label="not part of the language",
            help="remove it",
            edit=(start, stop, " " if first in INVISIBLE else "", "remove it"), safe=first in INVISIBLE,
        )  # fmt: skip

    # ---- comments ----
    def _slash(self, token: Token) -> None:
        start = token.start
        if self.text[token.stop] == "*":
            close = self.text.find("*/", token.stop + 1)
            stop = self._line_end(start) if close < 0 else close + 2
            self._comment(start, stop, "/* */", "start each line of a comment with `#`")
            return
        end = self._line_end(start)
        rest = self.text[start + 2 : end]
        operand = bool(self.kept) and self.kept[-1].kinds[-1] in ("NAME", "NUMBER", "RPAR", "RSQB", "UNIT")
        if operand and not _PROSE.search(_JOINING.sub("+", rest)):
            self.findings.report(
                "E013", (start, start + 2), "`//` is not an operator of this language",
                label="write `/`", help="`/` between integers is floor division already",
                edit=(start, start + 2, "/", "write `/`"), safe=True,
            )  # fmt: skip
            self.kept.append(Token(tables().literals["/"], "/", start, start + 2))
            self._pass(start + 2)
            return
        self._comment(start, end, "//", "start the comment with `#`", (start, start + 2, "#", "write `#`"))

    def _comment(self, start: int, stop: int, mark: str, help: str, edit=None) -> None:
        first = min(stop, self._line_end(start))
        self.findings.report(
            "E015", (start, first), f"a comment begins with `#`, not `{mark.split()[0]}`",
            label="comment of another language",
            help=help, edit=edit, safe=True,
        )  # fmt: skip
        self._pass(stop)
