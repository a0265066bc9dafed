"""Which point is the fastest: the geometric mean, over the cases, of its medians against those of the default."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import attrs

from kdsl.tune.log import BELOW_FLOOR, WRONG, Log
from kdsl.tune.prepared import Point, Prepared
from kdsl.validate.gpu_report import PASSED, rows


@attrs.frozen
class Scored:
    """A point with its medians by case, in microseconds; `ratio` to the default is None where a case is missing."""

    point: Point
    medians: Mapping[str, float]
    ratio: float | None
    note: str = ""


def devices(log: Log) -> list[str]:
    """The devices of the log that something was timed on."""
    return list(dict.fromkeys(entry.device for entry in log.entries.values() if entry.status == PASSED))


def scored(prepared: Prepared, log: Log, device: str, cases: Collection[str] = ()) -> list[Scored]:
    """Every point that is not discarded, the fastest first, then those that cannot be compared.

    Points are compared on the cases that the default was timed on, or on those of them in `cases`; one that was wrong,
    or had an impossible time, on any case is not compared at all.
    """
    base = next((p for p in prepared.points if p.choices == prepared.default), None)
    needed = _medians(base, log, device) if base is not None and base.bundle else {}
    needed = {case: median for case, median in needed.items() if not cases or case in cases}
    found = [_scored(point, needed, log, device) for point in prepared.runnable]
    return sorted(found, key=lambda one: math.inf if one.ratio is None else one.ratio)


def _scored(point: Point, needed: Mapping[str, float], log: Log, device: str) -> Scored:
    medians = _medians(point, log, device)
    bad = [e for e in log.of(point.code) if e.device == device and e.status in (WRONG, BELOW_FLOOR)]
    if bad:
        return Scored(point, medians, None, f"{bad[0].status} on {bad[0].case}")
    if not needed:
        return Scored(point, medians, None, "the default was not timed on these cases")
    if missing := [case for case in needed if case not in medians]:
        return Scored(point, medians, None, f"not timed on {', '.join(missing)}")
    logs = [math.log(medians[case] / needed[case]) for case in needed]
    return Scored(point, medians, math.exp(sum(logs) / len(logs)))


def _medians(point: Point, log: Log, device: str) -> dict[str, float]:
    return {
        entry.case: entry.numbers["median_us"] for entry in log.of(point.code)
        if entry.device == device and entry.status == PASSED
    }  # fmt: skip


def table(prepared: Prepared, found: list[Scored]) -> str:
    """A line for each point: medians by case, the ratio to the default; then the points that were discarded."""
    cases = list(dict.fromkeys(case for one in found for case in one.medians))
    lines = [
        [one.point.name, *(f"{one.medians[case]:.1f}" if case in one.medians else "-" for case in cases),
         f"{one.ratio:.3f}" if one.ratio is not None else "-",
         one.note or ("default" if one.point.choices == prepared.default else "")]
        for one in found
    ]  # fmt: skip
    text = rows(["medians, us", *cases, "to default", ""], lines) if lines else "no point was timed"
    discarded = [f"discarded: {p.name}: {p.reasons[0]}" for p in prepared.points if not p.bundle]
    return "\n".join([text, *discarded])
