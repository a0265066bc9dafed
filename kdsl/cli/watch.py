"""`kdsl watch PATH...`: check again after every change, and say in a line how it stands."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import click

PERIOD = 0.25  # seconds between two looks at the files
Stamps = dict[str, tuple[int, int]]


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--target", help="Check rules on this target only.")
@click.option("--all", "everything", is_flag=True, help="Print every finding, not only the first.")
@click.option(
    "--clear/--no-clear", default=None, help="Clear the terminal before each check; by default if it is one."
)
def watch(paths: tuple[Path, ...], target: str | None, everything: bool, clear: bool | None) -> None:
    """Check files and folders now and after every change, until CTRL-C. Files that they use are watched too.

    Exit: 0 stopped with no errors standing, 1 stopped with errors, 2 a path is not there.
    """
    for path in paths:
        if not path.exists():
            raise click.UsageError(f"there is no file or folder `{path}`")
    clears = sys.stdout.isatty() if clear is None else clear
    from kdsl.plan.remembered import check_and_derive

    seen: Stamps | None = None
    result = None
    try:
        while True:
            now = stamps(paths, result.files if result is not None else ())
            if now != seen:
                if clears and seen is not None:
                    click.clear()
                started = time.perf_counter()
                result = check_and_derive(paths, target)
                report(result, time.perf_counter() - started, everything, changed(seen, now))
                seen = {**stamps((), result.files), **now}  # what changed during the check is seen next time
            time.sleep(PERIOD)
    except KeyboardInterrupt:
        sys.exit(0 if result is None or result.ok else 1)


def stamps(paths: Iterable[Path], used: Iterable[str]) -> Stamps:
    """Time and size of every file that a check reads; a file that is gone has none."""
    from kdsl.check.files import listed_files

    found: Stamps = {}
    for path in (*listed_files(paths), *map(Path, used)):
        try:
            state = os.stat(path)
        except OSError:
            continue
        found[str(path)] = (state.st_mtime_ns, state.st_size)
    return found


def changed(before: Stamps | None, now: Stamps) -> list[str]:
    """Names of the files that are new, other or gone."""
    if before is None:
        return []
    return sorted(Path(path).name for path in before.keys() | now.keys() if before.get(path) != now.get(path))


def report(result, took: float, everything: bool, names: list[str]) -> None:
    """The first finding, or all, then one line."""
    from kdsl.source.render import ordered
    from kdsl.source.render.text import render_text, summary, wants_color

    found = ordered(result.diagnostics)
    shown = found if everything else found[:1]
    click.echo(render_text(shown, color=wants_color(sys.stdout)), nl=False)
    rest = f" ({len(found) - len(shown)} not shown)" if len(found) > len(shown) else ""
    what = (
        ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "") if names else "all"
    )
    click.echo(f"{time.strftime('%H:%M:%S')} {what}: {summary(found) or 'no findings'}{rest}, {took:.1f} s")
    sys.stdout.flush()
