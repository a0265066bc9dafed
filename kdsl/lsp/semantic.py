"""Semantic tokens: what each name is, where a highlighter of text alone can only see a word."""

from __future__ import annotations

from lsprotocol import types

from kdsl.lsp.positions import position, units
from kdsl.lsp.scope import Scope

TYPES = (
    "class", "struct", "function", "method", "variable", "parameter", "property", "enum", "enumMember",
    "typeParameter",
    "type", "namespace", "macro",
)  # fmt: skip
MODIFIERS = ("declaration", "readonly", "defaultLibrary")
OF_KIND = {
    "operator": "class", "target": "struct", "instruction": "struct", "feature": "struct",
    "tactic": "function",
    "rule": "class", "kernel": "method", "part": "namespace", "stage": "function", "tensor": "variable",
    "view": "variable",
    "index": "parameter", "dimension": "parameter", "argument": "parameter", "size": "typeParameter",
    "option": "property",
    "parameter": "property", "choice": "property", "form": "enum", "value": "enumMember", "input": "variable",
    "output": "variable", "definition": "function", "dtype": "type", "role": "namespace", "field": "property",
    "property": "property", "operand": "variable", "acceptance": "class", "predicate": "macro",
}  # fmt: skip
READONLY = ("size", "parameter", "choice", "field")

LEGEND = types.SemanticTokensLegend(list(TYPES), list(MODIFIERS))


def tokens(scope: Scope, encoding: str, first: int = 0, last: int | None = None) -> list[int]:
    """Five numbers a name: line and column after the one before, length, type, modifiers."""
    source = scope.loaded.trees[0].source
    data: list[int] = []
    line = column = 0
    end = -1
    for occurrence in scope.occurrences():
        span, kind = occurrence.span, OF_KIND.get(occurrence.symbol.kind)
        if kind is None or span.first < max(first, end) or (last is not None and span.first >= last):
            continue
        place = position(source, span.first, encoding)
        modifiers = occurrence.defines | (occurrence.symbol.kind in READONLY) << 1
        modifiers |= (occurrence.symbol.kind == "predicate") << 2
        delta = place.line - line
        data += [
            delta,
            place.character - (0 if delta else column),
            units(span.text, encoding),
            TYPES.index(kind),
            modifiers,
        ]
        line, column, end = place.line, place.character, span.last
    return data
