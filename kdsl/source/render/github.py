"""Diagnostics as GitHub workflow commands: `::error file=...,line=...::message`.

GitHub Docs, Workflow commands: `%`, CR and LF are escaped in the message, and `:` and `,` in properties too.
"""

from __future__ import annotations

from collections.abc import Iterable

from kdsl.source.codes import slug
from kdsl.source.diagnostic import Diagnostic, Severity
from kdsl.source.render import ordered

COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def render_github(diagnostics: Iterable[Diagnostic]) -> str:
    return "".join(_command(diagnostic) + "\n" for diagnostic in ordered(diagnostics))


def _command(diagnostic: Diagnostic) -> str:
    span = diagnostic.span
    line, column = span.source.location(span.first)
    end_line, end_column = span.source.location(max(span.first, span.last - 1))
    name = slug(diagnostic.code)
    properties = {"file": span.path.replace("\\", "/"), "line": str(line), "endLine": str(end_line)}
    if line == end_line:  # columns of an annotation over several lines are refused
        properties |= {"col": str(column), "endColumn": str(end_column)}
    properties["title"] = f"{diagnostic.code} {name}" if name else diagnostic.code
    listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{COMMANDS[diagnostic.severity]} {listed}::{_data(_message(diagnostic))}"


def _message(diagnostic: Diagnostic) -> str:
    lines = [diagnostic.message]
    if diagnostic.observed is not None:
        lines.append(f"observed: {diagnostic.observed}")
    if diagnostic.required is not None:
        lines.append(f"required: {diagnostic.required}")
    lines += [f"{label.span.path}:{label.span.line}: {label.text}" for label in diagnostic.labels]
    lines += [f"note: {note}" for note in diagnostic.notes]
    lines += [f"help: {help}" for help in diagnostic.help]
    return "\n".join(lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
