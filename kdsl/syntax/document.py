"""A text that changes under an editor: only what changed is parsed again."""

from __future__ import annotations

from collections import defaultdict

from kdsl.source.span import Origin, SourceFile
from kdsl.syntax.parse import Parsed, assemble, read_pieces
from kdsl.syntax.recover import Declared, read_declaration
from kdsl.syntax.split import Piece, split


class Document:
    """Holds one text and its tree.

    `update` keeps the nodes of every declaration whose text is the same as before, wherever it stands now,
    and moves their origin; the tree of before is then no longer to be used. `reread` counts the declarations
    parsed last time.
    """

    def __init__(self, path: str, text: str = ""):
        self.path = path
        self.reread = 0
        self._declared: list[tuple[int, Declared]] = []
        self.parsed: Parsed = self.update(text)

    @property
    def source(self) -> SourceFile:
        return self.parsed.tree.source

    @property
    def text(self) -> str:
        return self.source.text

    def update(self, text: str) -> Parsed:
        """The tree of the new text."""
        source = SourceFile(self.path, text)
        kept: dict[tuple[int, str], list[Declared]] = defaultdict(list)
        for indent, declared in reversed(self._declared):
            kept[indent, declared.text].append(declared)
        self.reread = 0

        def read(source: SourceFile, piece: Piece) -> Declared:
            body = text[piece.start : piece.stop]
            same = kept.get((piece.indent, body))
            if not same:
                self.reread += 1
                return read_declaration(body, Origin(source, piece.start), piece.indent)
            declared = same.pop()
            declared.origin.source, declared.origin.offset = source, piece.start
            return declared

        found = split(text)
        pieces = read_pieces(source, found.pieces, read)
        self._declared = [(piece.indent, declared) for piece, declared in pieces]
        self.parsed = assemble(source, pieces, found.comments)
        return self.parsed
