"""The texts an editor works on: open documents, and the files beside them as they are on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from attrs import define, field
from pygls.uris import from_fs_path, to_fs_path

from kdsl.check.files import standard_trees
from kdsl.source.diagnostic import Diagnostic
from kdsl.source.span import SourceFile
from kdsl.syntax import nodes as n
from kdsl.syntax.document import Document
from kdsl.syntax.parse import Parsed, read_source

MOST_FILES = 2000  # .kds files of a workspace that are looked at
SKIPPED = frozenset({".git", ".hg", "node_modules", "__pycache__", ".venv", "build", "dist"})


@define(eq=False)
class OnDisk:
    stamp: tuple[int, int]
    document: Document


@define(eq=False)
class Session:
    """Every text by its path. A document that is open hides the file on disk.

    `roots` are the workspace folders. A path is absolute and resolved; a document without a file has its URI
    in angle brackets.
    """

    roots: list[Path] = field(factory=list)
    _open: dict[str, Document] = field(factory=dict)
    _uris: dict[str, str] = field(factory=dict)
    _disk: dict[str, OnDisk] = field(factory=dict)
    _listed: list[str] | None = None

    # ---- paths ----
    def path_of(self, uri: str) -> str:
        found = to_fs_path(uri) if uri.startswith("file:") else None
        return resolved(found) if found else f"<{uri}>"

    def uri_of(self, path: str) -> str:
        known = self._uris.get(path)
        if known is not None:
            return known
        return path[1:-1] if path.startswith("<") else from_fs_path(path) or path

    # ---- open documents ----
    def open(self, uri: str, text: str) -> str:
        path = self.path_of(uri)
        self._uris[path] = uri
        self.change(path, text)
        return path

    def change(self, path: str, text: str) -> None:
        text = text.removeprefix("\ufeff")
        document = self._open.get(path)
        if document is None:
            self._open[path] = Document(path, text)
            self.forget_listing()
        elif document.text != text:
            document.update(text)

    def close(self, uri: str) -> str:
        path = self.path_of(uri)
        self._open.pop(path, None)
        self._uris.pop(path, None)
        return path

    @property
    def opened(self) -> tuple[str, ...]:
        return tuple(self._open)

    def is_open(self, path: str) -> bool:
        return path in self._open

    # ---- trees ----
    def parsed(self, path: str) -> Parsed | None:
        """The tree of an open document, a file of the standard library or one on disk; or None."""
        document = self._open.get(path)
        if document is not None:
            return document.parsed
        standard = standard_files().get(path)
        if standard is not None:
            return Parsed(standard, ())
        return self._from_disk(path)

    def take(self, source: SourceFile) -> Parsed:
        """The tree of a file that was just read from disk."""
        path = resolved(source.path)
        document = self._open.get(path)
        if document is not None:
            return document.parsed
        known = self._disk.get(path)
        if known is None:
            known = self._disk[path] = OnDisk((0, 0), Document(path, source.text))
        elif known.document.text != source.text:
            known.document.update(source.text)
        return known.document.parsed

    def _from_disk(self, path: str) -> Parsed | None:
        try:
            state = os.stat(path)
        except (OSError, ValueError):
            self._disk.pop(path, None)
            return None
        stamp = (state.st_mtime_ns, state.st_size)
        known = self._disk.get(path)
        if known is not None and known.stamp == stamp:
            return known.document.parsed
        source = read_source(path)
        if isinstance(source, Diagnostic):
            return None
        parsed = self.take(source)
        self._disk[path].stamp = stamp
        return parsed

    # ---- the workspace ----
    def files(self) -> list[str]:
        """Every `.kds` file below the workspace folders, and every open document."""
        if self._listed is None:
            self._listed = list(self._walk())
        return list(dict.fromkeys((*self._open, *self._listed)))

    def forget_listing(self) -> None:
        self._listed = None

    def _walk(self) -> Iterator[str]:
        count = 0
        for root in self.roots:
            for folder, folders, names in os.walk(root):
                folders[:] = sorted(name for name in folders if name not in SKIPPED)
                for name in sorted(names):
                    if name.endswith(".kds"):
                        count += 1
                        if count > MOST_FILES:
                            return
                        yield resolved(os.path.join(folder, name))


def resolved(path: str | Path) -> str:
    try:
        return str(Path(path).resolve())
    except (OSError, RuntimeError, ValueError):
        return str(path)


@lru_cache(maxsize=1)
def standard_files() -> dict[str, n.Tree]:
    """The standard library by path."""
    return {resolved(tree.source.path): tree for tree in standard_trees(())}


def is_standard(path: str) -> bool:
    """Whether a file belongs to the standard library: it is read, never renamed in."""
    return path in standard_files()
