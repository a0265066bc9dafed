"""`kdsl validate BUNDLE`: the clauses of `measure`, decided on this machine's device."""

from __future__ import annotations

import sys
from pathlib import Path

import click

EXIT_FINDINGS, EXIT_TOOL = 1, 3


@click.command()
@click.argument("bundle", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--output", type=click.Path(path_type=Path), metavar="NEW.kdsb",
              help="Write the bundle with the verdicts settled; it must not be there.")  # fmt: skip
@click.option("--target", metavar="T", help="Variants of this target only; by default those that run here.")
@click.option("--baseline", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="OLD.kdsb",
              help="What `baseline previous` stands for.")  # fmt: skip
@click.option("--runs", default=1000, show_default=True, help="Runs of a latency.")
@click.option("--seed", type=int, help="Seed of all data; by default drawn anew, so that no code can know it.")
def validate(bundle, output, target, baseline, runs, seed):
    """Run a bundle on this machine and decide what waits for a device: error, latency, profiler metrics.

    The judge's probes and calls drawn for the bundle's own options run through the public functions; results are held
    against the float64 oracle. What was measured is written into a copy of the bundle, never into the bundle itself.

    \b
      kdsl validate build/mma_bounded.kdsb --output build/mma_bounded.settled.kdsb

    Exit status: 0 every clause is settled and holds, 1 one fails or is still pending, 2 wrong usage, 3 the device or a
    tool is missing.
    """
    from kdsl.bench.device import NoDevice
    from kdsl.bundle.errors import BundleError
    from kdsl.bundle.load import read_bundle
    from kdsl.review.settle import Effort

    if output is not None and output.exists():
        raise click.UsageError(f"there is something at {output}")
    try:
        whole = read_bundle(bundle)
        before = read_bundle(baseline) if baseline is not None else None
        settled = settle_all(whole, target, Effort(runs, seed), before)
    except BundleError as wrong:
        raise click.UsageError(str(wrong)) from None
    except NoDevice as missing:
        click.echo(str(missing), err=True)
        sys.exit(EXIT_TOOL)
    for one in settled:
        click.echo(line(one))
    if output is not None:
        click.echo(f"written to {written(whole, settled, output)}", err=True)
    open_ = [one for one in settled if one.after.verdict != "holds"]
    click.echo(f"{len(settled) - len(open_)} of {len(settled)} clauses settled and holding", err=True)
    sys.exit(EXIT_FINDINGS if open_ else 0)


def settle_all(bundle, target, effort, baseline):
    """Pending clauses of every variant that runs here. Raises NoDevice if none does."""
    from kdsl.bench.device import NoDevice
    from kdsl.review.bench import bench
    from kdsl.review.settle import settle

    found, missing = [], None
    variants = [v for v in bundle.manifest.variants if target in (None, v.target)]
    if not variants:
        targets = ", ".join(dict.fromkeys(v.target for v in bundle.manifest.variants))
        raise click.UsageError(f"the bundle has no variant for {target}; it has {targets}")
    ran = False
    for variant in variants:
        try:
            device = bench(variant.target)
        except NoDevice as reason:
            missing = reason
            continue
        ran = True
        found += settle(bundle, variant, device, effort, baseline)
    if not ran:
        raise missing
    return found


def line(one) -> str:
    after = one.after
    told = f" ({after.evidence}), {after.found}" if after.found else f": {one.note}" if one.note else ""
    needed = f", needed {after.needed}" if after.found and after.needed not in (None, after.clause) else ""
    return f"{one.target} {one.variant}: `{after.clause}`: {after.verdict}{told}{needed}"


def written(bundle, settled, path: Path) -> Path:
    """A copy of the bundle with the verdicts as they now stand."""
    from attrs import evolve

    from kdsl.bundle.write import write_bundle
    from kdsl.review.settle import with_verdicts

    by_variant: dict[str, dict] = {}
    for one in settled:
        by_variant.setdefault(one.variant, {})[one.before.clause] = one
    variants = tuple(with_verdicts(v, by_variant.get(v.id, {})) for v in bundle.manifest.variants)
    files = {name: bundle.file(name) for name in bundle.manifest.files}
    return write_bundle(path, evolve(bundle.manifest, variants=variants), files)
