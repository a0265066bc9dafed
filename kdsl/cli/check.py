"""`kdsl check PATH...`: findings of rules, operators and hardware declarations."""

from __future__ import annotations

import sys
from pathlib import Path

import click

FORMATS = ("text", "json", "sarif", "github")


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="How to print findings.",
)
@click.option("--target", help="Check rules on this target only.")
@click.option("--fix", "safe", is_flag=True, help="Apply the safe edits of the findings, then check again.")
@click.option("--unsafe-fixes", "unsafe", is_flag=True, help="Apply the likely edits too.")
def check(paths: tuple[Path, ...], form: str, target: str | None, safe: bool, unsafe: bool) -> None:
    """Type-check files and folders of .kds, decide their contracts and derive their schedules at every choose point.

    The standard library is always in scope. The forms of an operator must have a proof on record (`kdsl prove
    --record`). Exit status: 0 clean or warnings only, 1 findings, 2 a path or
    target that is not there, or a folder without a .kds file.
    """
    from kdsl.plan.remembered import check_and_derive
    from kdsl.prove.ledger import with_proofs

    fixed = fix_files(paths, target, unsafe) if safe or unsafe else None
    result = with_proofs(check_and_derive(paths, target))
    if target is not None and target not in result.library.targets:
        known = ", ".join(result.library.targets)
        raise click.UsageError(f"there is no target `{target}`; known: {known}")
    click.echo(rendered(result.diagnostics, form), nl=False)
    if fixed is not None:
        click.echo(str(fixed), err=True)
    if form == "text":
        count = len(result.files)
        click.echo(summary_line(result.diagnostics, f"{count} file{'s' * (count != 1)}"), err=True)
    sys.exit(2 if nothing_there(result.diagnostics, paths) else 0 if result.ok else 1)


def nothing_there(diagnostics, paths: tuple[Path, ...]) -> bool:
    """Whether one of the paths named on the command line gave nothing to check."""
    named = {str(path) for path in paths}
    return any(d.code == "E030" and d.span.path in named for d in diagnostics)


def fix_files(paths: tuple[Path, ...], target: str | None, unsafe: bool):
    """Apply edits to the files named, not to those that they use; what was done."""
    from kdsl.check.files import listed_files
    from kdsl.cli.fix import fix
    from kdsl.plan.remembered import check_and_derive

    return fix(lambda: check_and_derive(paths, target).diagnostics, map(str, listed_files(paths)), unsafe)


def rendered(diagnostics, form: str) -> str:
    """The findings in one of FORMATS."""
    if form == "json":
        from kdsl.source.render.json import render_json

        return render_json(diagnostics)
    if form == "sarif":
        from kdsl.source.render.sarif import render_sarif

        return render_sarif(diagnostics)
    if form == "github":
        from kdsl.source.render.github import render_github

        return render_github(diagnostics)
    from kdsl.source.render.text import render_text, wants_color

    return render_text(diagnostics, color=wants_color(sys.stdout))


def summary_line(diagnostics, what: str) -> str:
    from kdsl.source.render.text import summary

    return f"{summary(diagnostics) or 'no findings'} in {what}"
