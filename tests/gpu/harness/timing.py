"""Times of the published cases, each checked against the oracle first, beside FLA in the same process."""

from __future__ import annotations

from functools import partial

import attrs

from harness.outcome import Checks, Context
from kdsl.bench.cases import CASES, SMALL_CASES, Case, variant_for
from kdsl.bench.measure import OURS, Stand, measure, measure_library
from kdsl.validate.latency import FEWEST_RUNS, RUNS

QUICK_CASES = ("h96", "h96-mixed", "n1", "n64")
QUICK_RUNS = 100
FLA = "fla"


def times(context: Context) -> Checks:
    """The bundle's cases; FLA on all of them, or on the first of chunk_kda alone (`--baseline one`)."""
    stand, cases = _stand(context), _cases(context)
    for case in cases:
        variant = variant_for(context.bundle.manifest.variants, case, context.device.target)
        yield f"{case.label}, {OURS}", partial(measure, stand, case, variant)
    # Last, because it tunes itself for up to a minute.
    one = [case for case in cases if case.rows or case == cases[0]]
    for case in {"none": [], "one": one, "all": cases}[context.baseline]:
        yield f"{case.label}, {FLA}", partial(measure_library, stand, case, FLA)


def _stand(context: Context) -> Stand:
    runs = FEWEST_RUNS if context.small else QUICK_RUNS if context.quick else RUNS
    return Stand(context.device, context.seed, runs, context.deadline)


def _cases(context: Context) -> list[Case]:
    known = SMALL_CASES if context.small else CASES
    return [
        attrs.evolve(case, gate=context.gate) for key, case in known.items()
        if case.operator == context.bundle.manifest.operator
        and (context.small or not context.quick or key in QUICK_CASES)
    ]  # fmt: skip
