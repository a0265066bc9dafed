"""Syntax errors that say what was found, what was expected, and what to write.

Each lesson looks at the place of an error and either reports what it knows, with the repair that lets the
parse go on, or passes. The first that knows wins; the last one knows only what the automaton expects.
"""

from __future__ import annotations

from kdsl.syntax import habits, layout_lessons, word_lessons
from kdsl.syntax.examples import line_help
from kdsl.syntax.findings import Findings
from kdsl.syntax.here import Here, Repair
from kdsl.syntax.machine import Machine
from kdsl.syntax.words import describe, found

LESSONS = (
    layout_lessons.open_bracket,
    layout_lessons.closing_bracket,
    layout_lessons.trailing_comma,
    habits.percent,
    layout_lessons.dangling_operator,
    layout_lessons.brace_on_next_line,
    habits.header_colon,
    layout_lessons.missing_brace,
    habits.equality,
    habits.unit,
    habits.number,
    habits.range_sign,
    habits.arrow,
    habits.conditional,
    habits.negated,
    habits.chained,
    word_lessons.foreign_word,
    word_lessons.misspelt,
    word_lessons.misplaced,
    word_lessons.doc_place,
    layout_lessons.missing_comma,
    layout_lessons.two_items,
    layout_lessons.missing_sign,
    layout_lessons.early_end,
)

HEADERS = {  # how a declaration begins
    "operator": "operator NAME {", "target": "target NAME {", "instruction": "instruction NAME {",
    "tactic": "tactic NAME(PARAMETERS) {", "rule": "rule NAME schedules OPERATOR on TARGET {",
}  # fmt: skip


def advise(machine: Machine, position: int, text: str, findings: Findings) -> Repair | int | None:
    """Report the error at token `position`; the repair, the index of the token to go on at, or None."""
    here = Here(machine, position, text)
    for lesson in LESSONS:
        advice = lesson(here, findings)
        if advice is not None:
            return advice if not isinstance(advice, bool) else None
    return _unexpected(here, findings)


def _unexpected(here: Here, findings: Findings) -> Repair | None:
    token = here.token
    where = f" in {here.block}" if here.block else ""
    first = here.tokens[here.item].text if not here.machine.frames and here.item < len(here.tokens) else ""
    header = HEADERS.get(first, "")
    quotes = 'write `"""` at both ends of a doc string' if "DOC" in here.expected and token.kinds[0] == "STRING" else ""
    drop = here.fits(here.position, 1) and token.kinds[0] not in ("LBRACE", "RBRACE", "_NL")
    better = f"write `{header}`" if header else quotes or line_help(here.keyword)
    findings.report(
        "E001", (token.start, token.stop), f"{found(here)} cannot stand here{where}",
        label="not expected", required=describe(here.expected), observed=found(here),
        help=f"remove `{token.text}`" if drop else better or (),
        edit=(token.start, token.stop, "", f"remove `{token.text}`") if drop else None,
    )  # fmt: skip
    return Repair(here.position, 1) if drop else None
