"""Lessons about brackets, braces, commas and the ends of lines."""

from __future__ import annotations

from kdsl.syntax.findings import Findings
from kdsl.syntax.here import AHEAD, LONGEST, Here, Repair, made
from kdsl.syntax.layout import CONTINUES
from kdsl.syntax.tokens import LINE, Token
from kdsl.syntax.words import CONTINUING, describe, found

PARTNER = {"(": ")", "[": "]"}


def open_bracket(here: Here, findings: Findings):
    """A `(` or `[` whose partner is missing: seen only some lines later, since no line ends inside it."""
    brackets = here.machine.brackets
    if not brackets:
        return None
    bracket = here.tokens[brackets[-1]]
    token, partner = here.token, PARTNER[bracket.text]
    if token.text in ")]" and token.text != partner:
        right = made(partner, token)
        if here.fits(here.position, 1, right):
            findings.report(
                "E005", (token.start, token.stop), f"`{bracket.text}` is closed by `{token.text}`",
                label=f"expected `{partner}`", labels=((bracket.start, bracket.stop, "opened here"),),
                help=f"write `{partner}`", edit=(token.start, token.stop, partner, f"write `{partner}`"),
            )  # fmt: skip
            return Repair(here.position, 1, (right,))
    if (
        token.kinds[0] not in ("LBRACE", "RBRACE", LINE)
        and "\n" not in here.text[bracket.start : token.start]
    ):
        return _closed_here(here, bracket, partner, findings)
    end = brackets[-1]
    while end < here.position and here.tokens[end].kinds[0] != LINE:
        end += 1
    if end >= here.position and token.kinds[0] not in ("LBRACE", "RBRACE", LINE):
        return None
    stop = here.tokens[end - 1].stop
    findings.report(
        "E005", (bracket.start, bracket.stop), f"this `{bracket.text}` is never closed", label="opened here",
        labels=((stop, stop, f"`{partner}` expected by here"),), help=f"add `{partner}`",
        edit=(stop, stop, partner, f"close the `{bracket.text}` at the end of its line"),
    )  # fmt: skip
    return end


def _closed_here(here: Here, bracket, partner: str, findings: Findings):
    """The partner that, put before the wrong token, makes the line right: `[8, 16 default 8`."""
    token, previous = here.token, here.previous
    right = made(partner, None, previous.stop, previous.stop)
    if right.kinds[0] not in here.expected or not here.fits(here.position, 0, right):
        return None
    findings.report(
        "E005", (token.start, token.stop), f"`{partner}` is missing before {found(here)}",
        label=f"expected `{partner}` before this", labels=((bracket.start, bracket.stop, "opened here"),),
        help=f"add `{partner}`", edit=(previous.stop, previous.stop, partner, f"add `{partner}`"),
    )  # fmt: skip
    return Repair(here.position, 0, (right,))


def closing_bracket(here: Here, findings: Findings):
    token = here.token
    if token.kinds[0] not in ("RPAR", "RSQB") or here.machine.brackets:
        return None
    findings.report(
        "E005", (token.start, token.stop), f"this `{token.text}` closes nothing",
        label="no partner before it",
        help="remove it, or add its partner before", edit=(token.start, token.stop, "",
        f"remove `{token.text}`"),
    )  # fmt: skip
    return Repair(here.position, 1) if here.fits(here.position, 1) else True


def trailing_comma(here: Here, findings: Findings):
    """A comma joins the next line to its own; before a `}` or a `)` it joins nothing."""
    for index in range(here.position, max(here.item - 1, here.position - 12), -1):
        comma = here.tokens[index]
        if comma.kinds[0] != "COMMA" or index + 1 == len(here.tokens):
            continue
        following = here.tokens[index + 1]
        ends = following.kinds[0] in (LINE, "RBRACE", "RPAR", "RSQB", "LBRACE", "COLON")
        if ends and here.fits(index, 1):
            break
    else:
        return None
    line, colon = following.kinds[0] == LINE, following.kinds[0] == "COLON"
    findings.report(
        "E016", (comma.start, comma.stop), "this comma has no name after it" if colon else
        "this comma has nothing after it", label="nothing follows",
        labels=((here.token.start, here.token.stop, "joined to the line above by the comma"),)
        if line and index < here.position else (),
        help="remove it: a list ends without a comma"
        + (", and a comma at the end of a line continues it" if line else ""),
        edit=(comma.start, comma.stop, "", "remove the comma"), safe=True,
    )  # fmt: skip
    return Repair(index, 1)


def dangling_operator(here: Here, findings: Findings):
    """An operator at the end of a line joins the next line to its own."""
    name = made("x")
    for index in range(here.position - 1, max(here.item - 1, here.position - 12), -1):
        sign = here.tokens[index]
        if here.tokens[index + 1].kinds[0] != LINE or sign.kinds[0] not in CONTINUES or sign.text == "{":
            continue
        value = Token(name.kinds, "x", sign.stop, sign.stop)
        if here.fits(index + 1, 0, value):
            break
    else:
        return None
    token = here.token
    findings.report(
        "E020", (sign.start, sign.stop), f"nothing follows `{sign.text}` on its line",
        label="a value is missing",
        labels=((token.start, token.stop, "so this was read as part of the line above"),),
        help=f"a line that ends in `{sign.text}` goes on in the next; write what follows, or remove it",
    )  # fmt: skip
    return Repair(index + 1, 0, (value,))


def brace_on_next_line(here: Here, findings: Findings):
    if here.token.kinds[0] != LINE or "LBRACE" not in here.expected:
        return None
    brace = here.at(1)
    if brace is None or brace.kinds[0] != "LBRACE":
        return None
    end = here.previous.stop
    findings.report(
        "E004", (brace.start, brace.stop), "`{` stands on the line of its header", label="move it up",
        labels=((end, end, "to here"),), help="end the header line with `{`",
        edit=(end, brace.stop, " {", "move `{` to the header"), safe="#" not in here.text[end : brace.start],
    )  # fmt: skip
    return Repair(here.position, 1)


def missing_brace(here: Here, findings: Findings):
    if "LBRACE" not in here.expected or not here.position:
        return None
    token, previous = here.token, here.previous
    brace = made("{", None, previous.stop, previous.stop)
    ends = token.kinds[0] in (LINE, "RBRACE")
    if not ends and not here.fits(here.position, 0, brace):
        return None
    words = [t.text for t in here.tokens[here.item : here.item + 2]]
    name = f"{words[0]} `{words[1]}`" if here.position - here.item > 1 else f"`{words[0]}`"
    findings.report(
        "E004", (previous.stop, previous.stop), f"`{{` is missing after the header of {name}",
        label="expected `{` here", help="end the header with `{`, and its block with `}`",
        edit=(previous.stop, previous.stop, " {", "open the block"),
    )  # fmt: skip
    return Repair(here.position, 0, (brace,)) if here.fits(here.position, 0, brace) and not ends else True


def missing_comma(here: Here, findings: Findings):
    if "COMMA" not in here.expected or not here.same_line():
        return None
    previous = here.previous
    comma = made(",", None, previous.stop, previous.stop)
    line = made("\n", None, previous.stop, previous.stop)
    other = LINE in here.expected and here.fits(here.position, 0, line)  # an item of its own would do as well so far
    if not here.fits(here.position, 0, comma, ahead=LONGEST if other else AHEAD):
        return None
    findings.report(
        "E021", (here.token.start, here.token.stop), f"a comma is missing before {found(here)}",
        label="expected `,` before this", help="separate the items of a list with `,`",
        edit=(previous.stop, previous.stop, ",", "add the comma"),
    )  # fmt: skip
    return Repair(here.position, 0, (comma,))


def two_items(here: Here, findings: Findings):
    if LINE not in here.expected or not here.same_line() or here.token.kinds[0] == LINE:
        return None
    previous, token = here.previous, here.token
    line = made("\n", None, previous.stop, previous.stop)
    if not here.fits(here.position, 0, line):
        return None
    findings.report(
        "E018", (token.start, token.stop), f"{found(here)} begins another item on the same line",
        label="a new line is missing before this",
        help="put it on a line of its own, or write `;` between the two",
        edit=(previous.stop, token.start, "; ", "separate the two with `;`"), safe=True,
    )  # fmt: skip
    return Repair(here.position, 0, (line,))


def missing_sign(here: Here, findings: Findings):
    """One `:`, `=`, `in`, `of`, `on` ... that makes the line right."""
    if here.previous is None:
        return None
    previous, token = here.previous, here.token
    for text in (
        ":",
        "=",
        "in",
        "of",
        "on",
        "over",
        "by",
        "when",
        "computes",
        "schedules",
        "then",
        "else",
        "for",
        ")",
    ):
        sign = made(text, None, previous.stop, previous.stop)
        if text.isalpha() and len(here.expected & CONTINUING) >= 3 and text not in ("then", "else"):
            continue
        if sign.kinds[0] not in here.expected or not here.fits(here.position, 0, sign):
            continue
        space = "" if text in ":)" else " "
        if text == previous.text:
            return None  # the name before it is what is missing
        findings.report(
            "E022", (token.start, token.stop), f"`{text}` is missing before {found(here)}",
            label=f"expected `{text}` before this",
            help=f"write `{text}` between `{previous.text}` and `{token.text}`",
            edit=(previous.stop, previous.stop, f"{space}{text}", f"add `{text}`"),
        )  # fmt: skip
        return Repair(here.position, 0, (sign,))
    return None


NUMBERED = {"by": 8, "pad": 8, "ring": 2, "swizzle": 64, "blocks": 2}  # words that a number of the schedule follows


def early_end(here: Here, findings: Findings):
    """A line that ends before its item is complete."""
    token, previous = here.token, here.previous
    if token.kinds[0] not in (LINE, "RBRACE") or previous is None or here.position <= here.item:
        return None
    expected = describe(here.expected)
    help = "a line goes on after a comma, after an operator and inside ( ) and [ ]"
    if previous.text in NUMBERED and "NUMBER" in here.expected:
        expected = "a number or the name of a choice"
        help = f"write it after `{previous.text}`: `{previous.text} {NUMBERED[previous.text]}`"
    findings.report(
        "E020", (previous.stop, previous.stop),
        f"the line ends too early: {expected} must follow `{previous.text}`",
        label=f"expected {expected}",
        help=help,
    )  # fmt: skip
    return True
