"""`kdsl viz RULE --target T`: the schedule as a picture."""

from __future__ import annotations

import sys

import click

from kdsl.cli.settings import number_or_text, parse_pairs

EXIT_FINDINGS = 1


@click.command()
@click.argument("given", metavar="RULE")
@click.option("--target", metavar="T", help="By default the rule's first.")
@click.option("--rule", "only", metavar="NAME", help="Of several rules, this one.")
@click.option("--set", "settings", multiple=True, callback=parse_pairs, metavar="NAME=VALUE",
              help="An option (gate=bounded), a dtype (q=bf16) or a choice of the rule.")  # fmt: skip
@click.option("--output", type=click.File("w", encoding="utf-8"), default="-", metavar="FILE.svg",
              help="A file in place of the terminal.")  # fmt: skip
def viz(given, target, only, settings, output):
    """Draw the schedule of a rule: kernels, stages in order with their loops, where each tensor lives and how long.

    \b
      kdsl viz rules/kda.chunk_forward/mma_bounded.kds --target sm_90a --output mma_bounded.svg

    Exit status: 0 drawn, 1 the rule is refused, 2 wrong usage.
    """
    from kdsl.plan.refusal import PlanRefused
    from kdsl.review.drawing import drawing
    from kdsl.review.subject import NotReviewable, subject
    from kdsl.review.svg import svg
    from kdsl.source.render.text import render_text

    settings = {name: number_or_text(value) for name, value in settings.items()}
    try:
        rule = subject(given, only)
        plan = rule.lowering(target or rule.rule.targets[0], settings).plan
    except NotReviewable as wrong:
        raise click.UsageError(str(wrong)) from None
    except PlanRefused as refusal:
        click.echo(render_text([refusal.diagnostic]), err=True, nl=False)
        sys.exit(EXIT_FINDINGS)
    output.write(svg(drawing(plan)))
