"""Text to tree. Any text gives a tree and the list of what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from attrs import frozen

from kdsl.source.diagnostic import Diagnostic, Edit
from kdsl.source.span import Origin, SourceFile, Span
from kdsl.syntax.findings import MOST
from kdsl.syntax.nodes import Comment, Tree
from kdsl.syntax.recover import Declared, read_declaration
from kdsl.syntax.split import Piece, split
from kdsl.syntax.tables import lark

__all__ = ["Parsed", "SyntaxErrors", "assemble", "lark", "parse", "parse_file", "parse_source", "read_source"]


@frozen
class Parsed:
    """A tree and what is wrong with the text.

    A declaration with a mistake is in the tree without the items that hold mistakes, if anything is left of
    it; `partial` holds the indices of those in `tree.declarations`. What is missing from them is no finding.
    """

    tree: Tree
    diagnostics: tuple[Diagnostic, ...]
    partial: frozenset[int] = frozenset()

    @property
    def ok(self) -> bool:
        return not self.diagnostics


class SyntaxErrors(ValueError):
    """A text was needed that is right, and is not; `diagnostics` says why."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...]):
        first = diagnostics[0]
        super().__init__(
            f"{first.span.path}:{first.span.line}:{first.span.column}: {first.code} {first.message}"
        )
        self.diagnostics = diagnostics


def parse_source(source: SourceFile) -> Parsed:
    """The tree of a text and its syntax errors: all that do not follow from another. Never raises."""
    found = split(source.text)
    return assemble(source, read_pieces(source, found.pieces, _read), found.comments)


def _read(source: SourceFile, piece: Piece) -> Declared:
    return read_declaration(source.text[piece.start : piece.stop], Origin(source, piece.start), piece.indent)


def read_pieces(
    source: SourceFile, pieces: tuple[Piece, ...], read: Callable[[SourceFile, Piece], Declared]
) -> list[tuple[Piece, Declared]]:
    """The declarations of a file, until it has more errors than anyone reads."""
    found, errors = [], 0
    for piece in pieces:
        declared = read(source, piece)
        found.append((piece, declared))
        errors += len(declared.diagnostics) + piece.crowded
        if errors > MOST:
            break
    return found


def assemble(
    source: SourceFile, pieces: list[tuple[Piece, Declared]], comments: Iterable[tuple[int, int]]
) -> Parsed:
    """One file from its declarations, read or kept from before."""
    declarations, partial, diagnostics = [], [], []
    whole = Origin(source)
    found = [Comment(Span(whole, start, stop), source.text[start:stop]) for start, stop in comments]
    for piece, declared in pieces:
        if piece.crowded:
            diagnostics.append(_crowded(whole, piece))
        for node in declared.nodes:
            if not declared.whole:
                partial.append(len(declarations))
            declarations.append(node)
        found.extend(declared.comments)
        diagnostics.extend(declared.diagnostics)
    found.sort(key=lambda comment: comment.span.first)
    diagnostics.sort(key=lambda diagnostic: diagnostic.order)
    if len(diagnostics) > MOST:
        last = diagnostics[MOST - 1]
        note = f"these are the first {MOST} errors of the file; mend them to see the others"
        diagnostics[MOST - 1 :] = [last.with_(notes=(*last.notes, note))]
    tree = Tree(source, tuple(declarations), tuple(found))
    return Parsed(tree, tuple(diagnostics), frozenset(partial))


def _crowded(origin: Origin, piece: Piece) -> Diagnostic:
    span = Span(origin, piece.start, piece.start + 1)
    edit = Edit(Span(origin, piece.start, piece.start), "\n", "begin a new line", safe=True)
    return Diagnostic(
        "E018", "two declarations stand on one line", span, label="begins another declaration",
        help=("put each on a line of its own, or write `;` between the two",), edits=(edit,),
    )  # fmt: skip


def read_source(path: str | Path) -> SourceFile | Diagnostic:
    """The text of a file, or what keeps it from being read. Line ends are kept, a byte order mark is not."""
    path = Path(path)
    name = str(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return _unreadable("E030", name, f"there is no file `{name}`", "check the path")
    except IsADirectoryError:
        return _unreadable("E031", name, f"`{name}` is a folder", "name the files in it")
    except (OSError, ValueError) as error:
        if path.is_dir():
            return _unreadable("E031", name, f"`{name}` is a folder", "name the files in it")
        reason = getattr(error, "strerror", None) or str(error)
        return _unreadable("E032", name, f"`{name}` cannot be read: {reason}", "check its permissions")
    return _decoded(name, data)


def _decoded(name: str, data: bytes) -> SourceFile | Diagnostic:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _unreadable("E033", name, f"`{name}` is UTF-16, not UTF-8", "save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = (
            f"`{name}` is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}, line {line}"
        )
        return _unreadable("E033", name, message, "save it as UTF-8")
    if "\0" in text:
        at = text.index("\0")
        source = SourceFile(name, text)
        count = text.count("\0")
        return Diagnostic(
            "E034", f"`{name}` holds {count} NUL byte{'s' * (count > 1)}: it is no text",
            Span(Origin(source), at, at + 1), label="the first", help=("save it as UTF-8 text",),
        )  # fmt: skip
    return SourceFile(name, text)


def _unreadable(code: str, name: str, message: str, help: str) -> Diagnostic:
    return Diagnostic(code, message, Span(Origin(SourceFile(name, "")), 0, 0), help=(help,))


def parse(source: SourceFile) -> Tree:
    """The tree of a text that is right; raises SyntaxErrors for one that is not."""
    parsed = parse_source(source)
    if parsed.diagnostics:
        raise SyntaxErrors(parsed.diagnostics)
    return parsed.tree


def parse_file(path: str | Path) -> Tree:
    """The tree of a file that is right; raises SyntaxErrors for one that is not, or that cannot be read."""
    source = read_source(path)
    if isinstance(source, Diagnostic):
        raise SyntaxErrors((source,))
    return parse(source)
