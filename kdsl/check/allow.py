"""`# kds: allow[W501] reason`: one warning silenced on its line, or on the next for a comment with its own
line.

Errors cannot be silenced. An allow that silences nothing, or does not say why, is a finding itself (W504).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from attrs import frozen

from kdsl.check.findings import closest, warning
from kdsl.source.codes import all_codes, lookup
from kdsl.source.diagnostic import Diagnostic, Edit, Severity
from kdsl.source.span import Span
from kdsl.syntax import nodes as n

CODE = "W504"
_MARK = re.compile(r"#[ \t]*kds:[ \t]*allow\b")
_ALLOW = re.compile(r"#[ \t]*kds:[ \t]*allow[ \t]*\[([^\]]*)\][ \t]*(.*)")
_WORD = re.compile(r"[^\s,]+")


@frozen
class Allow:
    """One code of one comment: it silences findings of that code on `line` of `path`."""

    code: str
    span: Span
    path: str
    line: int
    comment: n.Comment
    alone: bool  # the comment names no other code


def allowed(
    diagnostics: Iterable[Diagnostic], trees: Iterable[n.Tree], *, unused: bool = True
) -> list[Diagnostic]:
    """The findings that nothing silences, and those that the comments themselves make.

    Without `unused` an allow that silences nothing is let pass: the check did not look at everything.
    """
    diagnostics = list(diagnostics)
    allows, found = _read(trees)
    used: set[Allow] = set()
    for diagnostic in diagnostics:
        span = diagnostic.span
        by = [a for a in allows if a.code == diagnostic.code and a.path == span.path and a.line == span.line]
        if by and diagnostic.severity is not Severity.ERROR:
            used.update(by)
        else:
            found.append(diagnostic)
    if unused:
        found += [_unused(allow) for allow in allows if allow not in used]
    return found


def _read(trees: Iterable[n.Tree]) -> tuple[list[Allow], list[Diagnostic]]:
    """The allows of every comment that is written right, and a finding for each other one."""
    allows: list[Allow] = []
    found: list[Diagnostic] = []
    for tree in trees:
        comments = [comment for comment in tree.comments if _MARK.match(comment.text)]
        quiet = [d.span for d in tree.declarations if isinstance(d, n.Expectation)] if comments else []
        for comment in comments:
            if not any(span.first <= comment.span.first < span.last for span in quiet):
                _comment(comment, tree, allows, found)
    return allows, found


def _comment(comment: n.Comment, tree: n.Tree, allows: list[Allow], found: list[Diagnostic]) -> None:
    match = _ALLOW.match(comment.text)
    if match is None or not match[1].strip():
        found.append(_wrong("an allow names the codes that it silences", comment.span,
                            "write `# kds: allow[W501] reason`"))  # fmt: skip
        return
    if not match[2].strip():
        found.append(_wrong("an allow says why", comment.span, "add the reason after the `]`"))
    words = list(_WORD.finditer(match[1]))
    for word in words:
        start = comment.span.start + match.start(1) + word.start()
        span = Span(comment.span.origin, start, start + len(word.group()))
        problem = _problem(word.group(), span)
        if problem is not None:
            found.append(problem)
            continue
        line = _line(comment, tree)
        allows.append(Allow(word.group(), span, comment.span.path, line, comment, len(words) == 1))


def _problem(code: str, span: Span) -> Diagnostic | None:
    """Why a code cannot be allowed."""
    known = lookup(code)
    if known is None:
        warnings = [c.code for c in all_codes() if c.severity is not Severity.ERROR]
        near = closest(code, warnings)
        return _wrong(
            f"there is no code `{code}`",
            span,
            f"did you mean `{near}`?" if near else "see `kdsl explain --list`",
        )
    if known.severity is Severity.ERROR:
        return _wrong(f"{code} is an error, and only warnings can be allowed", span,
                      f"mend it: `kdsl explain {code}` shows how")  # fmt: skip
    return None


def _line(comment: n.Comment, tree: n.Tree) -> int:
    """The line that a comment speaks of: its own, or the next that is no comment if it stands alone."""
    source, line = tree.source, comment.span.line
    if source.line(line)[: comment.span.column - 1].strip():
        return line
    line += 1
    while source.line(line).lstrip().startswith("#"):
        line += 1
    return line


def _wrong(message: str, span: Span, help_: str) -> Diagnostic:
    return warning(CODE, message, span, help=(help_,))


def _unused(allow: Allow) -> Diagnostic:
    edit = Edit(
        _removed(allow), "", f"remove the {'comment' if allow.alone else f'code {allow.code}'}", safe=True
    )
    return warning(
        CODE, f"nothing to allow: there is no {allow.code} on line {allow.line}", allow.span,
        label="silences nothing", help=(edit.title,), edits=(edit,),
    )  # fmt: skip


def _removed(allow: Allow) -> Span:
    """What goes: the code with the comma beside it, the comment, or its whole line."""
    span, text = allow.comment.span, allow.span.source.text
    if not allow.alone:
        first, last = allow.span.first, allow.span.last
        after = re.compile(r"[ \t]*,[ \t]*").match(text, last)
        if after is not None:
            last = after.end()
        else:
            first = len(text[:first].rstrip(" \t,"))
        return Span(span.origin, first - span.origin.offset, last - span.origin.offset)
    first = span.first
    while first > 0 and text[first - 1] in " \t":
        first -= 1
    last = span.last
    if first == 0 or text[first - 1] == "\n":
        last += 1 if text[last : last + 1] == "\n" else 0
    return Span(span.origin, first - span.origin.offset, last - span.origin.offset)
