"""A difference as text for the terminal, and as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from kdsl.review.difference import CODE, MEANING, SCHEDULE, TIR, Difference, Figure, TextChange
from kdsl.review.meaning import Change
from kdsl.review.table import grid

TITLES = {MEANING: "The rule", SCHEDULE: "The schedule", TIR: "The TIR", CODE: "The machine code"}
SHOWN = 400  # lines of one text


def text(found: Difference) -> str:
    """Every level with what changed, or that it did not."""
    lines = [f"{found.rule} on {found.target}: {found.labels[0]} -> {found.labels[1]}"]
    if found.same and not found.absent:
        return f"{lines[0]}\nno difference in {', '.join(found.compared)}\n"
    for level, title in TITLES.items():
        if level in found.absent:
            lines += ["", f"{title}: not compared: {found.absent[level]}"]
        elif level in found.compared:
            body = list(level_text(found, level))
            lines += ["", f"{title}: {'' if body else 'the same'}".rstrip(), *body]
    return "\n".join(lines) + "\n"


def level_text(found: Difference, level: str) -> Iterator[str]:
    if level == MEANING:
        yield from meaning_text(found.meaning)
    elif level == CODE:
        yield from figure_text(found.figures)
    else:
        for change in found.schedule if level == SCHEDULE else found.tir:
            yield f"  kernel {change.kernel}: {counted(change)}"
            yield from (f"    {line}" for line in shown(change))


def meaning_text(found: tuple[Change, ...]) -> Iterator[str]:
    for section, group in groupby(found, key=lambda change: change.section):
        yield f"  {section}"
        for change in group:
            yield from (f"    {sign} {line}" for sign, line in signed(change))


def signed(change: Change) -> Iterator[tuple[str, str]]:
    if change.old is not None:
        yield "-", f"{change.key} {change.old}".strip()
    if change.new is not None:
        yield "+", f"{change.key} {change.new}".strip()


def figure_text(found: tuple[Figure, ...]) -> Iterator[str]:
    for kernel, group in groupby(found, key=lambda figure: figure.kernel):
        yield f"  kernel {kernel}"
        for figure in group:
            both = f"{number(figure.old):>8} -> {number(figure.new):>8}"
            yield f"    {figure.name:44} {both}  {change_of(figure)}".rstrip()


def counted(change: TextChange) -> str:
    return f"{change.added} line{'s' * (change.added != 1)} added, {change.dropped} dropped"


def number(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"


def change_of(figure: Figure) -> str:
    if figure.old is None or figure.new is None:
        return ""
    return f"{figure.new - figure.old:+g}"


def shown(change: TextChange) -> tuple[str, ...]:
    if len(change.lines) <= SHOWN:
        return change.lines
    return (*change.lines[:SHOWN], f"... {len(change.lines) - SHOWN} lines more")


# ---- Markdown


def markdown(found: Difference) -> str:
    """The rule's lines and the figures open, schedule and TIR folded."""
    lines = [f"### `{found.rule}` on {found.target}", "", f"`{found.labels[0]}` → `{found.labels[1]}`", ""]
    if found.same and not found.absent:
        return "\n".join([*lines, f"No difference in {', '.join(found.compared)}.", ""])
    for level, title in TITLES.items():
        if level in found.absent:
            lines += [f"**{title}** was not compared: {' '.join(found.absent[level].split())}", ""]
        elif level in found.compared:
            body = list(level_markdown(found, level))
            lines += [f"**{title}**{'' if body else ': the same'}", "", *body, *([""] if body else [])]
    return "\n".join(lines)


def level_markdown(found: Difference, level: str) -> Iterator[str]:
    if level == MEANING and found.meaning:
        yield "```diff"
        for section, group in groupby(found.meaning, key=lambda change: change.section):
            yield f"@@ {section} @@"
            for change in group:
                yield from (f"{sign} {line}" for sign, line in signed(change))
        yield "```"
    elif level == CODE and found.figures:
        rows = [(f.kernel, f.name, number(f.old), number(f.new), change_of(f)) for f in found.figures]
        yield from grid(("kernel", "figure", "before", "after", "change"), rows)
    elif level in (SCHEDULE, TIR):
        for change in found.schedule if level == SCHEDULE else found.tir:
            summary = f"kernel {change.kernel}: {counted(change)}"
            yield from (
                f"<details><summary>{summary}</summary>",
                "",
                "```diff",
                *shown(change),
                "```",
                "",
                "</details>",
            )
