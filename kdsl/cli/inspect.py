"""`kdsl inspect RULE|BUNDLE`: costly instructions with the lines they come from, and edits that were verified."""

from __future__ import annotations

import json
import sys

import click

from kdsl.cli.settings import number_or_text, parse_pairs

EXIT_FINDINGS, EXIT_TOOL = 1, 3


@click.command()
@click.argument("given", metavar="RULE|BUNDLE")
@click.option("--target", metavar="T", help="The GPU; of a bundle, the variant's.")
@click.option("--rule", "only", metavar="NAME", help="Of several rules, this one.")
@click.option("--set", "settings", multiple=True, callback=parse_pairs, metavar="NAME=VALUE",
              help="An option (gate=bounded), a dtype (q=bf16) or a choice of the rule.")  # fmt: skip
@click.option("--narrow", default=4, show_default=True, metavar="BYTES",
              help="Global accesses of fewer bytes a lane are listed.")  # fmt: skip
@click.option("--edits/--no-edits", default=True, help="Look for edits that remove bank conflicts, or do not.")
@click.option(
    "--rules", multiple=True, metavar="PATH", help="Where the rule of a bundle is; by default the shipped rules."
)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def inspect(given, target, only, settings, narrow, edits, rules, form):
    """List instructions of the machine code that cost more than they must, with the stage and rule line behind each.

    Bank conflicts, spills, uncoalesced and narrow global accesses. For conflicts, variants of the placement are lowered
    and judged; only an edit that was seen to remove the conflict is named.

    \b
      kdsl inspect rules/kda.chunk_forward/mma_bounded.kds --target sm_90a
      kdsl inspect build/mma_bounded.kdsb --no-edits --format json

    Exit status: 0 nothing costly, 1 something is, 2 wrong usage, 3 a tool is missing.
    """
    from kdsl.lower.toolchain.cc import ToolMissing
    from kdsl.lower.tvm import TvmMissing
    from kdsl.plan.refusal import PlanRefused
    from kdsl.review.inspection import document, report
    from kdsl.review.subject import NotReviewable
    from kdsl.source.render.text import render_text

    settings = {name: number_or_text(value) for name, value in settings.items()}
    try:
        found = inspected(given, target, only, settings, narrow, edits, rules)
    except NotReviewable as wrong:
        raise click.UsageError(str(wrong)) from None
    except PlanRefused as refusal:
        click.echo(render_text([refusal.diagnostic]), err=True, nl=False)
        sys.exit(EXIT_FINDINGS)
    except (ToolMissing, TvmMissing) as missing:
        click.echo(str(missing), err=True)
        sys.exit(EXIT_TOOL)
    click.echo(json.dumps(document(found), indent=1) if form == "json" else report(found), nl=form == "json")
    sys.exit(EXIT_FINDINGS if found.costs else 0)


def inspected(given, target, only, settings, narrow, edits, rules):
    """The inspection of a rule or a bundle. Raises NotReviewable, PlanRefused, ToolMissing."""
    from kdsl.data import data_root
    from kdsl.inspect.stages import staged_code
    from kdsl.review.bundles import is_bundle, origin
    from kdsl.review.costs import costs
    from kdsl.review.inspection import Inspection
    from kdsl.review.remedy import remedies
    from kdsl.review.subject import NotReviewable, subject

    if is_bundle(given):
        made = origin(given, target, rules or (str(data_root() / "rules"),))
        chosen, lowering = made.subject, made.lowering
    else:
        chosen = subject(given, only)
        gpus = [t for t in chosen.rule.targets if t != "cpu"]
        if target is None and len(gpus) != 1:
            raise NotReviewable(given, f"name a target with --target: {', '.join(chosen.rule.targets)}")
        lowering = chosen.lowering(target or gpus[0], settings)
    if lowering.plan.target.family != "cuda":
        raise NotReviewable(given, "machine code of GPUs is inspected; this is for the CPU")
    kernels = staged_code(lowering)
    found = tuple(cost for one in kernels for cost in costs(one, narrow))
    tried = tuple(remedies(chosen, lowering, kernels, found)) if edits else ()
    return Inspection(lowering, kernels, found, tried)
