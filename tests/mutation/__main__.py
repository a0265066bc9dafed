"""The command line of the suite: list, run, report."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import date
from pathlib import Path

import click

from .levels import LEVELS, every, level
from .report import document, table
from .run import entries_of, judged
from .sample import sampled

PAGE, TABLE = Path("docs/mutation.md"), Path("tests/mutation/outcomes.tsv")
LOG = Path("build/mutation/log.jsonl")


@click.group()
def main() -> None:
    """Mutants of rules, operators, generated code and contracts."""


@main.command("run")
@click.option(
    "--level", "levels", multiple=True, type=click.Choice(list(LEVELS)), help="Only these; by default all."
)
@click.option("--only", default="", metavar="TEXT", help="Only mutants whose name contains TEXT.")
@click.option("--most", default=0, metavar="N", help="At most N places of each operator on each subject.")
@click.option(
    "--part", default="1/1", metavar="I/N", help="Every N-th mutant from the I-th: for N processes."
)
@click.option("--log", default=LOG, type=click.Path(path_type=Path), show_default=True)
def run_command(levels, only, most, part, log) -> None:
    """Judge every mutant that the log does not have for its present text."""
    index, count = map(int, part.split("/"))
    mutants = [m for m in every(levels or tuple(LEVELS)) if only in m.name]
    mutants = (sampled(mutants, most) if most else mutants)[index - 1 :: count]
    if count > 1:
        log = log.with_suffix(f".{index}{log.suffix}")
    tally: Counter[str] = Counter()
    for number, entry in enumerate(judged(mutants, log), 1):
        tally[entry["stage"] or entry["verdict"]] += 1
        if not entry["stage"]:
            click.echo(
                f"{entry['verdict']}: {entry['name']} line {entry['line']}: {entry['change']}"
                f" ({entry['reason']})"
            )
        if number % 100 == 0:
            click.echo(f"{number}/{len(mutants)} {dict(tally)}", err=True)
    click.echo(f"{sum(tally.values())} mutants: {dict(tally)}")


@main.command("report")
@click.option("--log", default=LOG, type=click.Path(path_type=Path), show_default=True)
@click.option("--most", default=0, metavar="N", help="As in `run`.")
@click.option("--machine", default="x86-64 with two cores, no GPU", show_default=True)
@click.option("--date", default=lambda: f"{date.today()}")
def report_command(log, most, machine, date) -> None:
    """Write docs/mutation.md and tests/mutation/outcomes.tsv from the log."""
    listed = {name: sum(1 for _ in level(name).mutants()) for name in LEVELS}
    chosen = sampled(every(tuple(LEVELS)), most) if most else list(every(tuple(LEVELS)))
    entries = entries_of(chosen, log)
    PAGE.write_text(document(entries, listed, machine, date, most), encoding="utf-8")
    TABLE.write_text(table(entries), encoding="utf-8")
    click.echo(f"{len(entries)} of {len(chosen)} mutants: {PAGE}, {TABLE}")


@main.command("list")
def list_command() -> None:
    """Every mutant: its name, its line, its change."""
    for mutant in every(tuple(LEVELS)):
        click.echo(f"{mutant.name}\t{mutant.line}\t{mutant.change}")


if __name__ == "__main__":
    sys.exit(main())
