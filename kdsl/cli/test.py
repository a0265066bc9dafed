"""`kdsl test PATH...`: the `expect pass` and `expect refuse CODE` blocks of .kds files, checked."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
from attrs import evolve, frozen

EXIT_USAGE = 2


@frozen
class Outcome:
    """One block: `expected` and `found` are codes; `findings` what was found in it."""

    path: str
    line: int
    expected: tuple[str, ...]
    found: tuple[str, ...]
    findings: tuple = ()
    unknown: tuple[str, ...] = ()  # codes that no page describes

    @property
    def header(self) -> str:
        return f"expect refuse {', '.join(self.expected)}" if self.expected else "expect pass"

    @property
    def missing(self) -> list[str]:
        return [code for code in self.expected if code not in self.found]

    @property
    def unasked(self) -> list[str]:
        return [code for code in self.found if code not in self.expected and not code.startswith("W")]

    @property
    def ok(self) -> bool:
        return not (self.missing or self.unasked or self.unknown)

    @property
    def reason(self) -> str:
        if self.unknown:
            return f"there is no code {', '.join(self.unknown)}"
        parts = [f"{', '.join(self.missing)} not found"] if self.missing else []
        parts += [f"found {', '.join(self.unasked)}"] if self.unasked else []
        return "accepted" if self.missing and not self.found else "; ".join(parts)


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--quiet", "-q", is_flag=True, help="Print failures only.")
def test(paths: tuple[Path, ...], quiet: bool) -> None:
    """Check that blocks in files and folders are accepted, or refused with the codes they name.

    \b
      expect pass { rule ... }            no error
      expect refuse E302 { rule ... }     E302, and no other error

    A block sees its file, what the file uses and the standard library. Codes of warnings may be named too;
    syntax errors cannot be expected. Exit: 0 all as expected, 1 not, 2 a path is not there.
    """
    for path in paths:
        if not path.exists():
            raise click.UsageError(f"there is no file or folder `{path}`")
    from kdsl.check.files import listed_files

    passed = failed = 0
    for path in listed_files(paths):
        for outcome in outcomes(path):
            passed, failed = passed + outcome.ok, failed + (not outcome.ok)
            if not (quiet and outcome.ok):
                report(outcome)
    click.echo(f"{passed} as expected, {failed} not" if passed or failed else "no expectations", err=True)
    sys.exit(1 if failed else 0)


def report(outcome: Outcome) -> None:
    """One line, and for a failure what was found."""
    from kdsl.source.render.text import render_text, wants_color

    verdict = (
        click.style("ok", fg="green") if outcome.ok else click.style(f"FAILED: {outcome.reason}", fg="red")
    )
    click.echo(f"{outcome.path}:{outcome.line}: {outcome.header}: {verdict}")
    if not outcome.ok:
        shown = [d for d in outcome.findings if d.code in outcome.unasked]
        click.echo(render_text(shown, color=wants_color(sys.stdout)), nl=False)


def outcomes(path: Path) -> Iterator[Outcome]:
    """Every block of a file. A file that cannot be read, or has syntax errors, is one failure."""
    from kdsl.source.diagnostic import Diagnostic
    from kdsl.syntax import nodes as n
    from kdsl.syntax.parse import parse_source, read_source

    source = read_source(path)
    if isinstance(source, Diagnostic):
        yield Outcome(str(path), 1, (), (source.code,), (source,))
        return
    parsed = parse_source(source)
    blocks = [d for d in parsed.tree.declarations if isinstance(d, n.Expectation)]
    if parsed.diagnostics:
        if blocks:
            codes = tuple(dict.fromkeys(d.code for d in parsed.diagnostics))
            yield Outcome(str(path), parsed.diagnostics[0].span.line, (), codes, parsed.diagnostics)
        return
    outside = tuple(d for d in parsed.tree.declarations if not isinstance(d, n.Expectation))
    before = keys(findings(parsed.tree, outside)) if blocks else set()
    for block in blocks:
        yield outcome(parsed.tree, outside, block, before)


def outcome(tree, outside: tuple, block, before: set[tuple]) -> Outcome:
    """One block: what a check finds with it that it does not find without."""
    from kdsl.source.codes import lookup

    new = [d for d in findings(tree, (*outside, *block.items)) if key(d) not in before]
    expected = tuple(dict.fromkeys(code.text for code in block.codes))
    unknown = tuple(code for code in expected if lookup(code) is None)
    found = tuple(dict.fromkeys(d.code for d in new))
    return Outcome(block.span.path, block.span.line, expected, found, tuple(new), unknown)


def findings(tree, declarations: tuple) -> tuple:
    """What a check says of some declarations of a file."""
    from kdsl.check.driver import check_loaded
    from kdsl.check.files import Loaded, follow_uses
    from kdsl.plan.remembered import derived

    loaded = Loaded()
    whole = evolve(tree, declarations=declarations)
    loaded.trees.append(whole)
    loaded.paths.append(tree.source.path)
    follow_uses(loaded, whole, Path(tree.source.path), [])
    return derived(check_loaded(loaded, None)).diagnostics


def keys(diagnostics) -> set[tuple]:
    return {key(d) for d in diagnostics}


def key(diagnostic) -> tuple:
    return diagnostic.code, diagnostic.span.path, diagnostic.span.first, diagnostic.message
