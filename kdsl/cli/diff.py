"""`kdsl diff A B`: two files, revisions or bundles, from the lines of the rule to the instructions."""

from __future__ import annotations

import sys

import click

from kdsl.cli.settings import number_or_text, parse_pairs

LEVELS = ("meaning", "schedule", "tir", "code")
EXIT_DIFFERENT, EXIT_TOOL = 1, 3


def parse_levels(context, parameter, text: str) -> tuple[str, ...]:
    levels = tuple(filter(None, (part.strip() for part in text.split(","))))
    for level in levels:
        if level not in LEVELS:
            raise click.BadParameter(f"`{level}` is no level; there are {', '.join(LEVELS)}")
    return levels


@click.command()
@click.argument("old", metavar="A")
@click.argument("new", metavar="B")
@click.option("--target", metavar="T", help="By default the first target that both have.")
@click.option("--rule", "only", metavar="NAME", help="Of several rules, this one.")
@click.option("--set", "settings", multiple=True, callback=parse_pairs, metavar="NAME=VALUE",
              help="An option (gate=bounded), a dtype (q=bf16) or a choice of the rules.")  # fmt: skip
@click.option("--levels", default=",".join(LEVELS), show_default=True, callback=parse_levels, metavar="LEVEL,...",
              help="What to compare.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["text", "markdown"]), default="text", show_default=True)
def diff(old, new, target, only, settings, levels, form):
    """Compare two rules: what they say, their schedules, their TIR, and resources and instructions of their code.

    A and B are files or folders, git revisions of them, or bundles. Tactics are in their place and choices at their
    values, so that only what means something else is a difference.

    \b
      kdsl diff HEAD~1:rules/kda.chunk_forward/mma_bounded.kds rules/kda.chunk_forward/mma_bounded.kds
      kdsl diff main:rules rules --target sm_90a --format markdown
      kdsl diff old.kdsb new.kdsb --levels meaning,code

    Exit status: 0 no difference, 1 a difference, 2 wrong usage, 3 a tool is missing.
    """
    from kdsl.bundle.errors import BundleError
    from kdsl.lower.tvm import TvmMissing
    from kdsl.review.pairs import differences
    from kdsl.review.pull_request import markdown, text
    from kdsl.review.subject import NotReviewable

    render = markdown if form == "markdown" else text
    settings = {name: number_or_text(value) for name, value in settings.items()}
    try:
        found = list(differences(old, new, target, only, settings, levels))
    except (NotReviewable, BundleError) as wrong:
        raise click.UsageError(str(wrong)) from None
    except TvmMissing as missing:
        click.echo(str(missing), err=True)
        sys.exit(EXIT_TOOL)
    click.echo("\n".join(one if isinstance(one, str) else render(one) for one in found), nl=False)
    sys.exit(0 if all(not isinstance(one, str) and one.same for one in found) else EXIT_DIFFERENT)
