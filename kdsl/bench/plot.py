"""Times as a picture: a row for each kernel of a case, dots at medians, a line to the 95th percentile, the floor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from kdsl.source.render.svg import FAINT, INK, LINE, document, ring, text
from kdsl.validate.gpu_report import PASSED, Check

ROW, MARGIN, NAMES, PLOT, FIGURES, HEAD = 22, 24, 420, 520, 150, 84
OURS, LIBRARY, REFUSED = "#2563eb", "#d97706", "#b42318"
LEAST, MOST = 1.0, 10.0  # microseconds that the axis has at least


def plot(checks: Sequence[Check], device: str) -> str:
    """SVG of every check that was timed, on a logarithmic axis of microseconds."""
    timed = [check for check in checks if "median_us" in check.numbers]
    values = [check.numbers[key] for check in timed for key in ("median_us", "p95_us", "floor_us")]
    axis = _Axis(min([LEAST, *values]), max([MOST, *values]))
    cases = [list(rows) for _, rows in groupby(sorted(timed, key=_order(timed)), key=lambda c: c.numbers["case"])]
    height = HEAD + sum(ROW * len(rows) + 8 for rows in cases) + 70
    width = 2 * MARGIN + NAMES + PLOT + FIGURES
    parts = [text(MARGIN, 32, "Times of a call", 19, weight=600),
             text(MARGIN, 54, f"{device}; microseconds: median, 95th percentile, floor", 12, FAINT)]  # fmt: skip
    parts += axis.draw(HEAD, height - 60)
    y = HEAD
    for rows in cases:
        for at, check in enumerate(rows):
            parts += _row(check, y + ROW * (at + 0.5), axis, at == 0)
        y += ROW * len(rows) + 8
    return document(width, height, [*parts, *_legend(height - 18)])


def _order(timed: Sequence[Check]):
    """Cases as they come first; the kernels of a case together."""
    first = {check.numbers["case"]: at for at, check in reversed(list(enumerate(timed)))}
    return lambda check: first[check.numbers["case"]]


class _Axis:
    """Powers of ten from `low` to `high` microseconds."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = math.floor(math.log10(low)), math.ceil(math.log10(high))

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.low) / max(self.high - self.low, 1)
        return MARGIN + NAMES + share * PLOT

    def draw(self, top: float, bottom: float) -> Iterator[str]:
        for power in range(self.low, self.high + 1):
            for step in range(1, 10 if power < self.high else 2):
                x = self.at(step * 10.0**power)
                weight = 1 if step == 1 else 0.4
                yield f'<path d="M{x:.1f} {top}V{bottom}" stroke="{LINE}" stroke-width="{weight}"/>'
            yield text(self.at(10.0**power), bottom + 16, f"{10.0**power:g}", 11, FAINT, anchor="middle")


def _row(check: Check, y: float, axis: _Axis, first: bool) -> Iterator[str]:
    n = check.numbers
    colour = OURS if check.bundle else LIBRARY
    if check.status != PASSED:
        colour = REFUSED
    if first:
        yield text(MARGIN, y + 4, n["case"], 12, INK, 600)
    yield text(MARGIN + NAMES - 12, y + 4, check.bundle or n["kernel"], 12, FAINT, anchor="end")
    median, p95, floor = (axis.at(n[key]) for key in ("median_us", "p95_us", "floor_us"))
    yield f'<path d="M{floor:.1f} {y - 7}V{y + 7}" stroke="{INK}" stroke-width="1.6"/>'
    yield f'<path d="M{median:.1f} {y}H{p95:.1f}" stroke="{colour}" stroke-width="2"/>'
    yield ring(f"{p95:.1f}", y, colour)
    yield f'<circle cx="{median:.1f}" cy="{y}" r="4.4" fill="{colour}"/>'
    share = f"floor {100 * n['share_of_floor']:.0f}%" if check.status == PASSED else "refused"
    yield text(MARGIN + NAMES + PLOT + 12, y + 4, f"{n['median_us']:.1f} us, {share}", 12, colour)


def _legend(y: float) -> Iterator[str]:
    x = MARGIN
    for colour, name in ((OURS, "a bundle"), (LIBRARY, "a library"), (REFUSED, "below the floor")):
        yield f'<circle cx="{x + 5}" cy="{y - 4}" r="4.4" fill="{colour}"/>'
        yield text(x + 16, y, name, 12, FAINT)
        x += 46 + 7 * len(name)
    yield f'<path d="M{x + 4} {y - 11}V{y + 3}" stroke="{INK}" stroke-width="1.6"/>'
    yield text(x + 14, y, "the floor: compulsory bytes over the bandwidth of a copy", 12, FAINT)
