"""`kdsl fmt`: rewrite files in the one canonical form."""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
from attrs import frozen

from kdsl.source.diagnostic import Diagnostic
from kdsl.source.render.text import render_text, summary, wants_color
from kdsl.source.span import SourceFile
from kdsl.syntax.parse import parse_source, read_source
from kdsl.syntax.print import print_tree

SUFFIX = ".kds"
STDIN = "<stdin>"


@frozen
class Formatted:
    """One file before and after; `after` is None if it cannot be read or is no right text."""

    path: str
    before: str = ""
    after: str | None = None
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def changed(self) -> bool:
        return self.after is not None and self.after != self.before


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a file would change.")
@click.option(
    "--diff", is_flag=True, help="Write nothing; print what would change, and exit with 1 if something would."
)
@click.option(
    "--color/--no-color", default=None, help="Color, or none; by default if the output is a terminal."
)
def fmt(paths: tuple[str, ...], check: bool, diff: bool, color: bool | None) -> None:
    """Rewrite .kds files, and those in folders, in the one canonical form; `-` reads stdin and writes stdout.

    A file with a syntax error is left alone. Exit: 0 done, 1 a file would change or has errors, 2 a path is
    wrong.
    """
    if "-" in paths and len(paths) > 1:
        raise click.UsageError("`-` stands alone")
    results = [_stdin()] if paths == ("-",) else [_format(path) for path in _files(paths)]
    failed = [result for result in results if result.after is None]
    changed = [result for result in results if result.changed]
    if diff:
        for result in changed:
            click.echo(_difference(result), nl=False)
    elif check:
        for result in changed:
            click.echo(f"would reformat {result.path}")
    elif paths == ("-",):
        if not failed:
            click.echo(results[0].after, nl=False)
    else:
        failed += _write(changed)
    _report([d for result in failed for d in result.diagnostics], color)
    _conclude(results, changed, failed, quiet=paths == ("-",), dry=check or diff)
    if any(
        diagnostic.code in ("E030", "E031", "E032") for result in failed for diagnostic in result.diagnostics
    ):
        sys.exit(2)
    sys.exit(1 if failed or (changed and (check or diff)) else 0)


def _files(paths: tuple[str, ...]) -> Iterator[str]:
    """Each file once, those of folders in order."""
    seen = set()
    for path in paths:
        folder = Path(path)
        found = sorted(p for p in folder.rglob(f"*{SUFFIX}") if p.is_file()) if folder.is_dir() else [folder]
        for file in found:
            if file not in seen:
                seen.add(file)
                yield str(file)


def _format(path: str) -> Formatted:
    source = read_source(path)
    if isinstance(source, Diagnostic):
        return Formatted(path, diagnostics=(source,))
    # What was read lost its byte order mark; the canonical form has none, so the file itself is compared.
    before = Path(path).read_bytes().decode("utf-8", "replace")
    return _formatted(source, before)


def _stdin() -> Formatted:
    text = sys.stdin.buffer.read().decode("utf-8-sig", "replace")
    return _formatted(SourceFile(STDIN, text), text)


def _formatted(source: SourceFile, before: str) -> Formatted:
    parsed = parse_source(source)
    if not parsed.ok:
        return Formatted(source.path, before, None, parsed.diagnostics)
    return Formatted(source.path, before, print_tree(parsed.tree))


def _write(changed: list[Formatted]) -> list[Formatted]:
    """Write by rename, so that a file is the old or the new one and never a part; those that failed."""
    failed = []
    for result in changed:
        try:
            _replace(Path(result.path).resolve(), result.after)
        except OSError as error:
            reason = error.strerror or str(error)
            source = SourceFile(result.path, "")
            from kdsl.source.span import Span

            failed.append(
                Formatted(
                    result.path, result.before, None,
                    (Diagnostic("E032", f"`{result.path}` cannot be written: {reason}", Span.whole(source)),),
                )
            )  # fmt: skip
    return failed


def _replace(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
        os.chmod(temporary, path.stat().st_mode & 0o7777)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _difference(result: Formatted) -> str:
    before = result.before.splitlines(keepends=True)
    after = result.after.splitlines(keepends=True)
    lines = difflib.unified_diff(before, after, result.path, result.path)
    return "".join(
        line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines
    )


def _report(diagnostics: list[Diagnostic], color: bool | None) -> None:
    if diagnostics:
        text = render_text(diagnostics, color=wants_color(sys.stderr, color))
        click.echo(text + summary(diagnostics), err=True, color=color)


def _conclude(results, changed, failed, *, quiet: bool, dry: bool) -> None:
    if quiet:
        return
    done = len(changed) - sum(result.changed for result in failed)
    parts = [
        f"{done} {'would change' if dry else 'rewritten'}",
        f"{len(results) - len(changed) - len(failed)} unchanged",
    ]
    if failed:
        parts.append(f"{len(failed)} left alone")
    click.echo(", ".join(parts), err=True)
