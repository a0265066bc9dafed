"""Lessons about habits from other languages, and about numbers and units."""

from __future__ import annotations

import re

from kdsl.syntax.balance import HEADER_COLON
from kdsl.syntax.findings import Findings
from kdsl.syntax.here import Here, Repair, made
from kdsl.syntax.tables import tables
from kdsl.syntax.tokens import LINE, Token

UNITS = {
    "kb": "KiB", "kib": "KiB", "k": "KiB", "ki": "KiB", "kbytes": "KiB", "mb": "MiB", "mib": "MiB",
    "m": "MiB",
    "mi": "MiB", "b": "bytes", "byte": "bytes", "usec": "us", "micros": "us", "msec": "ms", "millis": "ms",
    "ghz": "GHz", "tbps": "TBps", "tb": "TBps", "tflops": "TFLOPs", "tflop": "TFLOPs",
}  # fmt: skip
LARGER = {"gb": "MiB, 1024 of them to a GiB", "gib": "MiB, 1024 of them to a GiB", "s": "`ms`", "sec": "`ms`",
          "ns": "`us`", "mhz": "`GHz`", "khz": "`GHz`", "gbps": "`TBps`", "gflops": "`TFLOPs`"}  # fmt: skip
ENDS = (LINE, "RBRACE", "RPAR", "RSQB", "COMMA")
_DECIMAL = re.compile(r"_\d[\d_]*$")
_BASED = re.compile(r"[xob][0-9a-fA-F_]+$", re.I)


def header_colon(here: Here, findings: Findings):
    """`rule x schedules y on z:`"""
    token, after = here.token, here.at(1)
    if token.kinds[0] != "COLON" or "LBRACE" not in here.expected or after is None:
        return None
    if after.kinds[0] not in (LINE, "LBRACE"):
        return None
    brace = made("{", token)
    findings.report(
        "E012", (token.start, token.stop), *HEADER_COLON,
        edit=(token.start, token.stop, "" if after.kinds[0] == "LBRACE" else " {", "replace `:`"),
        safe=after.kinds[0] == "LBRACE",
    )  # fmt: skip
    return Repair(here.position, 1, () if after.kinds[0] == "LBRACE" else (brace,))


def equality(here: Here, findings: Findings):
    """`=` where values are compared, `==`, `:` or `:=` where one is given."""
    token, expected = here.token, here.expected
    wrong, right, why = token.text, None, ""
    if wrong == "=" and "COMPARE" in expected:
        right, why = "==", "`=` gives a value, `==` compares two"
    elif wrong == "==" and "EQUAL" in expected:
        right, why = "=", "`==` compares two values, `=` gives one"
    elif wrong == ":" and "EQUAL" in expected and "COLON" not in expected:
        right, why = "=", "a value is given with `=`"
    elif wrong == "=" and "COLON" in expected:
        right, why = ":", "this line needs `:`"
    if right is None:
        return None
    count, after = 1, here.at(1)
    if wrong == ":" and after is not None and after.text == "=" and after.start == token.stop:
        count, wrong, why = 2, ":=", "a value is given with `=`"
    sign = made(right, token)
    if not here.fits(here.position, count, sign, ahead=2):
        return None
    stop = here.tokens[here.position + count - 1].stop
    findings.report(
        "E011", (token.start, stop), f"`{wrong}` cannot stand here: {why}", label=f"write `{right}`",
        help=f"replace `{wrong}` by `{right}`", edit=(token.start, stop, right, f"write `{right}`"),
        safe=True,
    )  # fmt: skip
    return Repair(here.position, count, (sign,))


def chained(here: Here, findings: Findings):
    """`16 <= K <= 128`"""
    token, tokens = here.token, here.tokens
    first = next((i for i in range(here.item, here.position) if tokens[i].kinds[0] == "COMPARE"), None)
    if token.kinds[0] != "COMPARE" or first is None or first + 1 == here.position:
        return None
    middle = tokens[first + 1 : here.position]
    new = (*middle, made("and", token), *middle)
    if not here.fits(first + 1, len(middle), *new, ahead=2):
        return None
    text = here.text[middle[0].start : middle[-1].stop]
    left, right = tokens[first - 1].text, here.at(1).text if here.at(1) is not None else "..."
    findings.report(
        "E013", (token.start, token.stop), "comparisons do not chain", label="a second comparison",
        help=f"write `{left} {tokens[first].text} {text} and {text} {token.text} {right}`",
        edit=(token.start, token.start, f"and {text} ", f"add `and {text}`"),
    )  # fmt: skip
    return Repair(first + 1, len(middle), new)


def unit(here: Here, findings: Findings):
    token, number = here.token, here.previous
    if number is None or number.kinds[0] != "NUMBER" or token.kinds[-1] != "NAME" or not here.same_line():
        return None
    word = token.text.lower()
    right = UNITS.get(word)
    all_units = ", ".join(sorted(t for t, kinds in tables().literals.items() if "UNIT" in kinds))
    if right is None:
        if word not in LARGER:
            return None
        findings.report(
            "E010", (token.start, token.stop), f"`{token.text}` is not a unit of this language",
            label="unknown unit", help=f"use {LARGER[word]}; the units are {all_units}",
        )  # fmt: skip
        sign = made("ms", token)
        return Repair(here.position, 1, (sign,)) if here.fits(here.position, 1, sign) else True
    count, stop = 1, token.stop
    slash = here.at(1)
    if slash is not None and slash.text == "/" and here.at(2) is not None and here.at(2).text == "s":
        count, stop = 3, here.at(2).stop
        right = "TBps"
    sign = made(right, token)
    if not here.fits(here.position, count, sign, ahead=2):
        return None
    written = here.text[token.start : stop]
    same = written.lower() == right.lower() or written == "TB/s"
    note = "" if same or right not in ("KiB", "MiB") else f"; {right} counts in powers of 1024"
    findings.report(
        "E010", (token.start, stop), f"`{written}` is not a unit of this language", label=f"write `{right}`",
        help=(f"write `{number.text} {right}`{note}", f"the units are {all_units}"),
        edit=(token.start, stop, right, f"write `{right}`"), safe=same,
    )  # fmt: skip
    return Repair(here.position, count, (sign,))


def percent(here: Here, findings: Findings):
    """`95%` without what it is a share of."""
    for index in range(here.position - 1, max(here.item, here.position - 12), -1):
        number, sign, after = here.tokens[index - 1], here.tokens[index], here.tokens[index + 1]
        if (
            sign.text == "%"
            and number.kinds[0] == "NUMBER"
            and number.stop == sign.start
            and after.kinds[0] in ENDS
        ):
            break
    else:
        return None
    findings.report(
        "E020", (number.start, sign.stop), f"`{number.text}%` does not say of what", label="a share of what?",
        help=f"write what 100% would be, as in `{number.text}% of target.shared_bytes_per_block`",
    )  # fmt: skip
    return Repair(index, 1)


def number(here: Here, findings: Findings):
    """`1_000`, `0x10`, `.5`, `1.`"""
    token, before = here.token, here.previous
    found = None
    if before is not None and before.kinds[0] == "NUMBER" and before.stop == token.start:
        written = before.text + token.text
        if _DECIMAL.match(token.text):
            found = written.replace("_", "")
        elif before.text == "0" and _BASED.match(token.text):
            try:
                found = str(int(written, 0))
            except ValueError:
                return None
        if found is not None:
            sign = made(found, None, before.start, token.stop)
            findings.report(
                "E023", (before.start, token.stop), f"`{written}` is not how a number is written",
                label=f"write `{found}`",
                help="a number is decimal digits, with a point and an exponent if need be",
                edit=(before.start, token.stop, found, f"write `{found}`"), safe=True,
            )  # fmt: skip
            fits = here.fits(here.position - 1, 2, sign)
            return Repair(here.position - 1, 2, (sign,)) if fits else True
    return None


def range_sign(here: Here, findings: Findings):
    """`16:256`, `16 to 256`, `16-256` in place of `16..256`."""
    token = here.token
    if "__ANON_0" not in here.expected or token.text not in (":", "to", "until", "through", "upto"):
        return None
    sign = made("..", token)
    if not here.fits(here.position, 1, sign, ahead=1):
        return None
    findings.report(
        "E013", (token.start, token.stop), f"a range is written with `..`, not with `{token.text}`",
        label="write `..`", help="`16..256` holds both of its ends",
        edit=(token.start, token.stop, "..", "write `..`"), safe=False,
    )  # fmt: skip
    return Repair(here.position, 1, (sign,))


def arrow(here: Here, findings: Findings):
    """`<-`, `->`, `=>`, `=<`, `<>`, `===` and their kin."""
    signs = "<>=-+*/%:"
    first = here.position
    while first > here.item and here.position - first < 3 and _joined(here, first - 1, signs):
        first -= 1
    last = here.position
    while last + 1 < len(here.tokens) and last - here.position < 3 and _joined(here, last, signs):
        last += 1
    if first == last:
        return None
    start, stop = here.tokens[first].start, here.tokens[last].stop
    written = here.text[start:stop]
    choices = {"=>": (">=", "="), "=<": ("<=",), "<>": ("!=",), "===": ("==",), "!==": ("!=",), "<-": ("=",),
               "->": ("=", ":"), "+=": ("=",), "-=": ("=",), "*=": ("=",), "/=": ("=",), ":=": ("=",),
               "::": (":",),
               "**=": ("=",), "++": ("+ 1",), "--": ("- 1",)}  # fmt: skip
    if written not in choices:
        return None
    for right in choices[written]:
        sign = made(right, None, start, stop)
        if " " not in right and here.fits(first, last - first + 1, sign):
            findings.report(
                "E013", (start, stop), f"`{written}` is not an operator of this language",
                label=f"write `{right}`", help=f"replace `{written}` by `{right}`",
                edit=(start, stop, right, f"write `{right}`"),
            )  # fmt: skip
            return Repair(first, last - first + 1, (sign,))
    findings.report(
        "E013", (start, stop), f"`{written}` is not an operator of this language", label="no such operator",
        help="the operators are + - * / % ** == != < <= > >= and or not in is",
    )  # fmt: skip
    return True


def _joined(here: Here, index: int, signs: str) -> bool:
    """Whether tokens `index` and the next are signs without space between."""
    one, two = here.tokens[index], here.tokens[index + 1]
    return one.stop == two.start and bool(one.text) and one.text[-1] in signs and two.text[:1] in tuple(signs)


def conditional(here: Here, findings: Findings):
    """`a if c else b`"""
    token = here.token
    if token.text != "if" or not here.same_line() or here.position <= here.item:
        return None
    findings.report(
        "E013", (token.start, token.stop), "a choice begins with `if`, it does not follow its value",
        label="Python's order", help="write `if condition then a else b`",
    )  # fmt: skip
    return True


def negated(here: Here, findings: Findings):
    """`x not in [..]`, `x is not y`, `c ? a : b`."""
    token, before, first = here.token, here.previous, here.at(-2)
    if before is not None and before.text == "not" and first is not None and first.text == "is":
        findings.report(
            "E013", (first.start, before.stop), "`is not` is not an operator of this language",
            label="`not` stands before what it denies", help="write `not x is y`",
        )  # fmt: skip
        return Repair(here.position - 1, 1)
    if token.text != "not" or before is None or before.kinds[0] in (LINE, "LBRACE"):
        return None
    after: Token | None = here.at(1)
    if before.text == "is":
        word, help = "is not", "write `not x is y`"
    elif after is not None and after.text == "in":
        word, help = "not in", "write `not x in [a, b]`"
    else:
        return None
    findings.report(
        "E013", (token.start, token.stop), f"`{word}` is not an operator of this language",
        label="`not` stands before what it denies", help=help,
    )  # fmt: skip
    fits = here.fits(here.position, 1)
    return Repair(here.position, 1) if fits else True
