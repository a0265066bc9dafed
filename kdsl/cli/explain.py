"""`kdsl explain`: what a diagnostic code means."""

from __future__ import annotations

import sys

import click

from kdsl.source import codes


@click.command()
@click.argument("code", required=False)
@click.option("--list", "listing", is_flag=True, help="List every code with its summary.")
def explain(code: str | None, listing: bool) -> None:
    """Print the page of CODE: what it says, why it matters, an example that fails and one that is right.

    CODE is a code (E302) or its name in words (shared-over-budget). Exit: 0, or 2 for an unknown code.
    """
    if listing:
        click.echo(_list(), nl=False)
        return
    if code is None:
        raise click.UsageError("name a code, as in `kdsl explain E008`, or use --list")
    page = codes.page(code.upper()) or _by_name(code)
    if page is None:
        click.echo(_unknown(code), err=True)
        sys.exit(2)
    click.echo(page.text, nl=False)


def _by_name(name: str) -> codes.Page | None:
    match = next((entry.code for entry in codes.all_codes() if entry.slug == name.lower()), None)
    return codes.page(match) if match else None


def _list() -> str:
    lines, family = [], None
    width = max((len(entry.slug) for entry in codes.all_codes()), default=0)
    for entry in codes.all_codes():
        if codes.family(entry.code) != family:
            family = codes.family(entry.code)
            lines += ([""] if lines else []) + [family]
        lines.append(f"  {entry.code}  {entry.severity.value:7}  {entry.slug:{width}}  {entry.summary}")
    return "\n".join(lines) + "\n"


def _unknown(code: str) -> str:
    from difflib import get_close_matches

    known = [entry.code for entry in codes.all_codes()] + [entry.slug for entry in codes.all_codes()]
    near = get_close_matches(code.upper(), known, 3, 0.7) or get_close_matches(code.lower(), known, 3, 0.6)
    hint = f" Did you mean {', '.join(near)}?" if near else ""
    return f"error: no code `{code}`.{hint} `kdsl explain --list` shows all."
