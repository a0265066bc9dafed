"""The winner as an edit of the rule: the target's defaults in `choose`, as a unified diff for review."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import evolve

from kdsl.bench.subjects import NotUsable
from kdsl.check import check_source
from kdsl.check.model import Rule
from kdsl.check.operators import block
from kdsl.plan.refusal import PlanRefused
from kdsl.source.diagnostic import Severity
from kdsl.source.span import SourceFile
from kdsl.syntax import nodes as n
from kdsl.syntax.print import format_text, print_node
from kdsl.tune.prepare import Space
from kdsl.tune.prepared import Prepared


def stale(space: Space, prepared: Prepared) -> str:
    """Why what was prepared is not what the rule and the compiler make now; "" if it is."""
    if len(prepared.points) < prepared.total:
        return f"{len(prepared.points)} of {prepared.total} points are prepared"
    if (prepared.rule, prepared.target) != (space.rule.name, space.target):
        return f"it is of rule {prepared.rule} on {prepared.target}, not of {space.rule.name} on {space.target}"
    changed = sum(point.key != _key(space, point.choices) for point in prepared.points)
    count = f"{changed} of {len(prepared.points)}"
    return f"{count} points come from an earlier text of the rule or an earlier compiler" if changed else ""


def _key(space: Space, choices: Mapping[str, object]) -> str:
    from kdsl.driver.compile import content_key

    if any(choices.get(name) not in values for name, values in space.rule.choices.items()):
        return "no point of the rule"
    try:
        return content_key(space.plan(choices))
    except PlanRefused:
        return ""


def edited(text: str, rule: Rule, target: str, winner: Mapping[str, object]) -> str:
    """The rule's file with the winner as the target's defaults; the same text if it has them already.

    Raises NotUsable if the text does not check with them.
    """
    canonical = format_text(text) == text
    lines = [line for line in block(rule.declaration.items, "choose") if _differs(line, rule, target, winner)]
    for line in sorted(lines, key=lambda line: line.span.first, reverse=True):
        new = "\n".join(print_node(one).strip() for one in _with_defaults(line, rule, target, winner))
        text = text[: line.span.first] + new + text[line.span.last :]
    if canonical:
        text = format_text(text)
    found = [d for d in check_source(SourceFile(rule.declaration.span.path, text)) if d.severity is Severity.ERROR]
    if found:
        raise NotUsable(f"with {winner} as its defaults the rule does not check: {found[0].code}: {found[0].message}")
    return text


def _differs(line: n.Option, rule: Rule, target: str, winner: Mapping[str, object]) -> bool:
    now = rule.defaults_on(target)
    return any(now[name.text] != winner[name.text] for name in line.names)


def _with_defaults(line: n.Option, rule: Rule, target: str, winner: Mapping[str, object]) -> Iterator[n.Option]:
    """The line, or one for each of its names where those differ."""
    several = len({winner[name.text] for name in line.names}) > 1
    for names in [(name,) for name in line.names] if several else [line.names]:
        value = winner[names[0].text]
        others = [one for one in line.target_defaults if one.target.text != target]
        base = line.default
        if base is None:  # a list of targets stands behind the default of the others
            base = _value(line, rule.defaults[names[0].text])
        if rule.defaults[names[0].text] != value:
            others.append(n.TargetDefault(line.span, _value(line, value), n.Id(line.span, target)))
        yield evolve(line, names=names, default=base, target_defaults=tuple(others))


def _value(line: n.Option, value: object) -> n.Expr:
    return n.Name(line.span, value) if isinstance(value, str) else n.Number(line.span, str(value))


def diff(path: str, before: str, after: str) -> str:
    """A unified diff that `git apply` and `patch -p1` take, from the current folder."""
    name = os.path.relpath(path).replace(os.sep, "/")
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{name}", f"b/{name}")
    return "".join(lines)


def text_of(rule: Rule) -> tuple[str, str]:
    """The path and text of the rule's file."""
    path = rule.declaration.span.path
    return path, Path(path).read_text(encoding="utf-8")
