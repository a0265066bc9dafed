"""`kdsl verdicts PATH...`: every clause of every rule on every target, and what the machine code takes."""

from __future__ import annotations

import re
import sys

import click

EXIT_FINDINGS, EXIT_TOOL = 1, 3


@click.command()
@click.argument("paths", nargs=-1, required=True)
@click.option("--target", "targets", metavar="T[,T...]", help="These targets only; by default all of every rule.")
@click.option("--output", type=click.File("w", encoding="utf-8"), default="-", help="A file in place of the terminal.")
def verdicts(paths, targets, output):
    """Lower every rule of PATHS for its targets at its default choices; print verdicts and resources, Markdown.

    \b
      kdsl verdicts rules/ --output docs/verdicts.md
      kdsl verdicts HEAD~1:rules --target sm_90a,sm_100a

    Exit status: 0 every clause holds or waits for a GPU, 1 one fails or is unknown, 2 wrong usage, 3 a tool is missing.
    """
    from kdsl.lower.toolchain.cc import ToolMissing
    from kdsl.lower.tvm import TvmMissing
    from kdsl.review.subject import NotReviewable, subjects
    from kdsl.review.table import Table, markdown, outcomes

    wanted = targets.split(",") if targets else None
    found = []
    try:
        chosen = [subject for path in paths for subject in subjects(path)]
        if wanted and not any(set(wanted) & set(subject.rule.targets) for subject in chosen):
            raise click.UsageError(f"no rule for {targets}")
        for one in outcomes(chosen, wanted):
            click.echo(f"{one.rule} on {one.target}: {'good' if one.good else 'NOT good'}", err=True)
            found.append(one)
        tools = tool_names(found)
    except NotReviewable as wrong:
        raise click.UsageError(str(wrong)) from None
    except (ToolMissing, TvmMissing) as missing:
        click.echo(str(missing), err=True)
        sys.exit(EXIT_TOOL)
    table = Table(tuple(found), tools)
    output.write(markdown(table))
    sys.exit(0 if table.good else EXIT_FINDINGS)


def tool_names(found) -> tuple[str, ...]:
    """Everything that took part, with its version."""
    from kdsl.driver.versions import compiler_of, versions

    named = [f"{name} {version}" for name, version in versions().items()]
    families = dict.fromkeys("cpu" if one.target == "cpu" else "cuda" for one in found)
    named += [compiler_of(family, "sm_90a")[0] for family in families]
    tools = [tool for one in found for verdict in one.verdicts for tool in verdict.tools]
    tools = [tool for tool in tools if re.search(r"\d+\.\d+", tool) and tool not in " ".join(named)]
    return tuple(dict.fromkeys([*named, *tools]))
