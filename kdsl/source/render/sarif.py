"""Diagnostics as SARIF 2.1.0, the form that code hosts and editors read.

OASIS, Static Analysis Results Interchange Format 2.1.0: regions count lines and columns from 1, `endColumn`
is the column after the last character, and columns are told to be Unicode code points.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from urllib.parse import quote

from kdsl import __version__
from kdsl.source.codes import page
from kdsl.source.diagnostic import Diagnostic, Edit
from kdsl.source.render import ordered
from kdsl.source.span import Span

SCHEMA_URI = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def document(diagnostics: Iterable[Diagnostic]) -> dict:
    found = ordered(diagnostics)
    rules = sorted({diagnostic.code for diagnostic in found})
    index = {code: number for number, code in enumerate(rules)}
    run = {
        "tool": {
            "driver": {"name": "kdsl", "version": __version__, "rules": [_rule(code) for code in rules]}
        },
        "columnKind": "unicodeCodePoints",
        "results": [_result(diagnostic, index) for diagnostic in found],
    }
    return {"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]}


def render_sarif(diagnostics: Iterable[Diagnostic]) -> str:
    return json.dumps(document(diagnostics), indent=2, ensure_ascii=True) + "\n"


def _rule(code: str) -> dict:
    found = page(code)
    if found is None:
        return {"id": code}
    return {
        "id": code,
        "name": found.code.slug,
        "shortDescription": {"text": found.code.summary},
        "help": {"text": f"kdsl explain {code}", "markdown": found.text},
        "defaultConfiguration": {"level": found.code.severity.value},
    }


def _result(diagnostic: Diagnostic, index: dict[str, int]) -> dict:
    result = {
        "ruleId": diagnostic.code,
        "ruleIndex": index[diagnostic.code],
        "level": diagnostic.severity.value,
        "message": {"text": _message(diagnostic)},
        "locations": [_location(diagnostic.span, diagnostic.label)],
    }
    if diagnostic.labels:
        related = [_location(label.span, label.text) for label in diagnostic.labels]
        result["relatedLocations"] = [{"id": number, **place} for number, place in enumerate(related)]
    if diagnostic.edits:
        result["fixes"] = [_fix(edit) for edit in diagnostic.edits]
    facts = {
        "observed": diagnostic.observed, "required": diagnostic.required,
        "evidence": diagnostic.evidence.value if diagnostic.evidence else None,
    }  # fmt: skip
    facts = {name: value for name, value in facts.items() if value is not None}
    if facts:
        result["properties"] = facts
    return result


def _message(diagnostic: Diagnostic) -> str:
    lines = [diagnostic.message]
    if diagnostic.observed is not None:
        lines.append(f"observed: {diagnostic.observed}")
    if diagnostic.required is not None:
        lines.append(f"required: {diagnostic.required}")
    lines += [f"note: {note}" for note in diagnostic.notes]
    lines += [f"help: {help}" for help in diagnostic.help]
    return "\n".join(lines)


def _location(span: Span, text: str) -> dict:
    place: dict = {"physicalLocation": {"artifactLocation": _artifact(span), "region": _region(span)}}
    if text:
        place["message"] = {"text": text}
    return place


def _artifact(span: Span) -> dict:
    """A relative path stays one; an absolute path is a file URI, on Windows too."""
    path = span.path.replace("\\", "/")
    drive = len(path) > 2 and path[1] == ":"
    prefix = "file:///" if drive else "file://" if path.startswith("/") else ""
    body = path[:2] + quote(path[2:]) if drive else quote(path)
    return {"uri": prefix + body}


def _region(span: Span) -> dict:
    line, column = span.source.location(span.first)
    end_line, end_column = span.source.location(span.last)
    return {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}


def _fix(edit: Edit) -> dict:
    replacement: dict = {"deletedRegion": _region(edit.span)}
    if edit.replacement:
        replacement["insertedContent"] = {"text": edit.replacement}
    change = {"artifactLocation": _artifact(edit.span), "replacements": [replacement]}
    return {"description": {"text": edit.title}, "artifactChanges": [change]}
