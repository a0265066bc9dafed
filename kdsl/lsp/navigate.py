"""From a name to its declaration, to every use of it, and to another name for it."""

from __future__ import annotations

import re
from pathlib import Path

from attrs import frozen
from lsprotocol import types

from kdsl.lsp.names import Occurrence, Symbol
from kdsl.lsp.positions import range_of
from kdsl.lsp.session import is_standard, resolved
from kdsl.lsp.workspace import Workspace
from kdsl.source.diagnostic import Diagnostic
from kdsl.source.span import Span
from kdsl.syntax.tables import tables

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_0-9]*[A-Za-z_][A-Za-z0-9_]*)*")
DOTTED = ("operator", "target", "instruction", "acceptance", "tactic", "rule")  # names that may hold dots
FIXED = ("dtype", "predicate", "file", "feature")  # names that the language, a tool or a disk owns


@frozen
class CannotRename(Exception):
    """Why a name stays as it is."""

    reason: str

    def __str__(self) -> str:
        return self.reason


def definitions(workspace: Workspace, path: str, offset: int) -> list[types.Location]:
    found = workspace.at(path, offset)
    if found is None:
        return []
    if found.symbol.kind == "file":
        target = resolved(Path(path).parent / found.symbol.name)
        start = types.Position(0, 0)
        return [types.Location(workspace.session.uri_of(target), types.Range(start, start))]
    return [_location(workspace, o.span) for o in workspace.everywhere(found.symbol) if o.defines]


def references(workspace: Workspace, path: str, offset: int, declaration: bool = True) -> list[types.Location]:
    found = workspace.at(path, offset)
    if found is None:
        return []
    return [_location(workspace, o.span) for o in workspace.everywhere(found.symbol) if declaration or not o.defines]


def highlights(workspace: Workspace, path: str, offset: int, encoding: str) -> list[types.DocumentHighlight]:
    found, scope = workspace.at(path, offset), workspace.scope(path)
    if found is None or scope is None:
        return []
    kinds = types.DocumentHighlightKind
    return [types.DocumentHighlight(range_of(o.span, encoding), kinds.Write if o.defines else kinds.Read)
            for o in scope.occurrences() if o.symbol == found.symbol]  # fmt: skip


def _location(workspace: Workspace, span: Span) -> types.Location:
    return types.Location(workspace.session.uri_of(span.path), range_of(span, workspace.encoding))


# ---- rename ------------------------------------------------------------------------------------------------


def renamable(workspace: Workspace, path: str, offset: int) -> Occurrence:
    """The name at a place, if it may have another. Raises CannotRename."""
    found = workspace.at(path, offset)
    if found is None:
        raise CannotRename("there is no name here")
    if found.symbol.kind in FIXED or (found.symbol.kind == "field" and found.symbol.owner == "target"):
        raise CannotRename(f"`{found.symbol.name}` is {_article(found.symbol.kind)} that kdsl knows by this name")
    if any(is_standard(o.span.path) for o in workspace.everywhere(found.symbol)):
        raise CannotRename(f"`{found.symbol.name}` belongs to the standard library")
    return found


def rename(workspace: Workspace, path: str, offset: int, name: str) -> types.WorkspaceEdit:
    """Every occurrence renamed, in every file. Raises CannotRename for what would break a file."""
    found = renamable(workspace, path, offset)
    symbol = found.symbol
    if not NAME.fullmatch(name):
        raise CannotRename(f"`{name}` is no name: letters, digits and `_`, with dots between")
    if "." in name and symbol.kind not in DOTTED:
        raise CannotRename(f"`{name}`: the name of {_article(symbol.kind)} has no dots")
    if name in tables().keywords:
        raise CannotRename(f"`{name}` is a word of the language")
    _refuse_taken(workspace, path, symbol, name)
    changes: dict[str, list[types.TextEdit]] = {}
    for occurrence in workspace.everywhere(symbol):
        uri = workspace.session.uri_of(occurrence.span.path)
        edit = types.TextEdit(range_of(occurrence.span, workspace.encoding), name)
        changes.setdefault(uri, [])
        if edit not in changes[uri]:
            changes[uri].append(edit)
    return types.WorkspaceEdit(changes=changes)


def _refuse_taken(workspace: Workspace, path: str, symbol: Symbol, name: str) -> None:
    """Two things of one owner cannot share a name."""
    scope = workspace.scope(path)
    if symbol.kind in ("operator", "target", "instruction", "tactic", "rule", "acceptance"):
        taken = name in scope.names(symbol.kind)
    else:
        taken = any(o.symbol.name == name and o.symbol.owner == symbol.owner and o.defines
                    and (o.symbol.kind == "stage") == (symbol.kind == "stage")
                    for reach in workspace.reachable() if (inner := workspace.scope(reach)) is not None
                    for o in inner.occurrences())  # fmt: skip
    if taken:
        raise CannotRename(f"`{name}` is taken")


def _article(kind: str) -> str:
    return ("an " if kind[:1] in "aeiou" else "a ") + kind


# ---- code actions ------------------------------------------------------------------------------------------


def actions(
    workspace: Workspace, path: str, first: int, last: int, shown: list[types.Diagnostic]
) -> list[types.CodeAction]:
    """The edits of the findings that touch [first, last); then all safe edits of the file."""
    found: list[types.CodeAction] = []
    diagnostics = workspace.analysis(path).diagnostics
    for diagnostic in diagnostics:
        if diagnostic.span.path != path or diagnostic.span.last < first or diagnostic.span.first > last:
            continue
        answered = [
            d for d in shown if d.code == diagnostic.code and d.range == range_of(diagnostic.span, workspace.encoding)
        ]
        for edit in diagnostic.edits:
            found.append(types.CodeAction(
                edit.title, kind=types.CodeActionKind.QuickFix, diagnostics=answered or None,
                is_preferred=edit.safe or len(diagnostic.edits) == 1,
                edit=_edits(workspace, [edit])))  # fmt: skip
    safe = _apart(edit for d in diagnostics if d.span.path == path for edit in d.edits[:1] if edit.safe)
    if safe:
        title = f"apply {len(safe)} safe edit{'s' * (len(safe) != 1)} of this file"
        found.append(types.CodeAction(title, kind=types.CodeActionKind.SourceFixAll, edit=_edits(workspace, safe)))
    return found


def _apart(edits) -> list:
    """Edits that do not touch each other, in order."""
    kept = []
    for edit in sorted(edits, key=lambda e: (e.span.first, e.span.last)):
        if not kept or edit.span.first >= kept[-1].span.last and edit.span != kept[-1].span:
            kept.append(edit)
    return kept


def _edits(workspace: Workspace, edits) -> types.WorkspaceEdit:
    changes: dict[str, list[types.TextEdit]] = {}
    for edit in edits:
        uri = workspace.session.uri_of(edit.span.path)
        changes.setdefault(uri, []).append(types.TextEdit(range_of(edit.span, workspace.encoding), edit.replacement))
    return types.WorkspaceEdit(changes=changes)


# ---- diagnostics -------------------------------------------------------------------------------------------

SEVERITIES = {
    "error": types.DiagnosticSeverity.Error, "warning": types.DiagnosticSeverity.Warning,
    "note": types.DiagnosticSeverity.Information,
}  # fmt: skip


def published(workspace: Workspace, path: str, diagnostics: tuple[Diagnostic, ...]) -> list[types.Diagnostic]:
    """Findings of one file as the protocol has them: the message, then observed, required and advice.

    A finding in another file that a line of this one causes (a tactic that it applies) is shown at that line.
    """
    found = []
    for diagnostic in diagnostics:
        if diagnostic.span.path == path:
            found.append(_published(workspace, diagnostic, diagnostic.span))
            continue
        here = [label for label in diagnostic.labels if label.span.path == path]
        if here:
            first = next((label for label in here if label.text.startswith("applied by")), here[0])
            found.append(_published(workspace, diagnostic, first.span))
    return found


def _published(workspace: Workspace, found: Diagnostic, span: Span) -> types.Diagnostic:
    lines = [found.message]
    if found.observed is not None and found.required is not None:
        lines.append(f"observed {found.observed}, required {found.required}")
    lines += [*found.notes, *(f"help: {text}" for text in found.help)]
    places = [(label.span, label.text) for label in found.labels if label.span.source.text]
    if span is not found.span:
        places.insert(0, (found.span, found.label or found.message))
    related = [types.DiagnosticRelatedInformation(_location(workspace, place), text) for place, text in places]
    unused = found.code in ("W502", "W504")
    return types.Diagnostic(
        range_of(span, workspace.encoding),
        "\n".join(lines),
        severity=SEVERITIES[found.severity.value],
        code=found.code,
        source="kdsl",
        related_information=related or None,
        tags=[types.DiagnosticTag.Unnecessary] if unused else None,
    )
