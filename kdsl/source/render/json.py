"""Diagnostics as a JSON document; `diagnostics.schema.json` beside this file describes it."""

from __future__ import annotations

import json
from collections.abc import Iterable

from kdsl.source.codes import slug
from kdsl.source.diagnostic import Diagnostic, Edit
from kdsl.source.render import ordered
from kdsl.source.render.text import summary
from kdsl.source.span import Span

SCHEMA = 1


def document(diagnostics: Iterable[Diagnostic]) -> dict:
    """The document as data. Lines and columns count from 1, offsets from 0, both in characters."""
    found = ordered(diagnostics)
    return {"schema": SCHEMA, "summary": summary(found), "diagnostics": [entry(item) for item in found]}


def render_json(diagnostics: Iterable[Diagnostic]) -> str:
    return json.dumps(document(diagnostics), indent=2, ensure_ascii=True) + "\n"


def entry(diagnostic: Diagnostic) -> dict:
    """One diagnostic; every key is always there."""
    return {
        "code": diagnostic.code,
        "name": slug(diagnostic.code),
        "severity": diagnostic.severity.value,
        "message": diagnostic.message,
        "span": place(diagnostic.span),
        "label": diagnostic.label,
        "labels": [{"span": place(label.span), "text": label.text} for label in diagnostic.labels],
        "observed": diagnostic.observed,
        "required": diagnostic.required,
        "evidence": diagnostic.evidence.value if diagnostic.evidence else None,
        "notes": list(diagnostic.notes),
        "help": list(diagnostic.help),
        "edits": [_edit(edit) for edit in diagnostic.edits],
    }


def place(span: Span) -> dict:
    line, column = span.source.location(span.first)
    end_line, end_column = span.source.location(span.last)
    return {
        "path": span.path,
        "start": {"offset": span.first, "line": line, "column": column},
        "end": {"offset": span.last, "line": end_line, "column": end_column},
    }


def _edit(edit: Edit) -> dict:
    return {
        "title": edit.title, "span": place(edit.span), "replacement": edit.replacement, "safe": edit.safe,
    }  # fmt: skip
