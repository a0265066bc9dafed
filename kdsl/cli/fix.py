"""The edits of findings, applied: `kdsl check --fix` and `--unsafe-fixes`.

A safe edit keeps what the author wrote; any other is the likeliest meaning. All files are written or none
is, each by rename, and a file that an edit would break is left as it was.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from attrs import field, frozen

from kdsl.source.diagnostic import Diagnostic, Edit
from kdsl.source.span import SourceFile
from kdsl.syntax.parse import parse_source

ROUNDS = 10  # an edit may uncover the next finding
BOM = b"\xef\xbb\xbf"


@frozen
class Fixed:
    """What was done: edits applied by file, and why writing failed, if it did."""

    applied: dict[str, int] = field(factory=dict)
    failure: str = ""

    @property
    def count(self) -> int:
        return sum(self.applied.values())

    def __str__(self) -> str:
        if self.failure:
            return f"nothing was written: {self.failure}"
        files = len(self.applied)
        edits = f"{self.count} edit{'s' * (self.count != 1)}"
        return f"applied {edits} in {files} file{'s' * (files != 1)}" if files else "no edits to apply"


def fix(check: Callable[[], Iterable[Diagnostic]], paths: Iterable[str], unsafe: bool) -> Fixed:
    """Apply edits to files among `paths` until a check gives no more; `check` reads them again every time."""
    within = {_resolved(path) for path in paths}
    applied: dict[str, int] = {}
    for _ in range(ROUNDS):
        texts, counts = edited(check(), within, unsafe)
        if not texts:
            break
        failure = write(texts)
        if failure:
            return Fixed(applied, failure)
        for path, count in counts.items():
            applied[path] = applied.get(path, 0) + count
    return Fixed(applied)


def edited(
    diagnostics: Iterable[Diagnostic], within: set[str], unsafe: bool
) -> tuple[dict[str, str], dict[str, int]]:
    """The new text of every file that changes, and the number of edits in each."""
    by_source: dict[int, tuple[SourceFile, list[Edit]]] = {}
    for diagnostic in diagnostics:
        for edit in diagnostic.edits[:1]:
            if edit.safe or unsafe:
                source = edit.span.source
                by_source.setdefault(id(source), (source, []))[1].append(edit)
    texts, counts = {}, {}
    for source, edits in by_source.values():
        if _resolved(source.path) not in within:
            continue
        chosen = apart(edits)
        text = rewritten(source.text, chosen)
        if text != source.text and not broken(source, text):
            texts[source.path], counts[source.path] = text, len(chosen)
    return texts, counts


def apart(edits: Iterable[Edit]) -> list[Edit]:
    """Edits of one file in order, without those that touch the one before."""
    chosen: list[Edit] = []
    for edit in sorted(edits, key=lambda e: (e.span.first, e.span.last, e.replacement)):
        if not chosen or edit.span.first > chosen[-1].span.last:
            chosen.append(edit)
    return chosen


def rewritten(text: str, edits: list[Edit]) -> str:
    for edit in reversed(edits):
        text = text[: edit.span.first] + edit.replacement + text[edit.span.last :]
    return text


def broken(source: SourceFile, text: str) -> bool:
    """Whether a text has more syntax errors than it had."""
    after = parse_source(SourceFile(source.path, text)).diagnostics
    return len(after) > 0 and len(after) >= len(parse_source(source).diagnostics)


# ---- files -------------------------------------------------------------------------------------------------


def write(texts: dict[str, str]) -> str:
    """Put all texts in place, or none; why not, or nothing."""
    ready: list[tuple[str, Path]] = []
    try:
        for name, text in texts.items():
            path = Path(name).resolve()
            ready.append((_prepared(path, text), path))
        for temporary, path in ready:
            os.replace(temporary, path)
    except OSError as error:
        for temporary, _ in ready:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return f"{error.strerror or error}: {getattr(error, 'filename', None) or ''}".rstrip(": ")
    return ""


def _prepared(path: Path, text: str) -> str:
    """A file beside `path` with the new text; a byte order mark and the permissions stay."""
    mark = BOM if path.read_bytes().startswith(BOM) else b""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(mark + text.encode("utf-8"))
        os.chmod(temporary, path.stat().st_mode & 0o7777)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return temporary


def _resolved(path: str | Path) -> str:
    try:
        return str(Path(path).resolve())
    except (OSError, RuntimeError, ValueError):
        return str(path)
