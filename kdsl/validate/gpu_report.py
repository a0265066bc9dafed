"""What a run on a GPU found: single checks and times, as a table to read and a JSON document to keep.

A check that could not be made is `unknown`, which is no pass. A case that a bundle's rule refuses by name is
`refused`: right for that rule, and counted apart.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kdsl.validate.acceptance import Acceptance
from kdsl.validate.latency import Timing

PASSED, FAILED, REFUSED, UNKNOWN, SKIPPED = "passed", "failed", "refused", "unknown", "skipped"
STATUSES = (PASSED, FAILED, REFUSED, UNKNOWN, SKIPPED)
SCHEMA = 1
WIDEST = 96


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: in which section, of which bundle ("" for none), and what was found.

    `detail` is one sentence; `numbers` what it rests on; `traceback` the text of an error that ended it.
    """

    section: str
    bundle: str
    name: str
    status: str
    detail: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    traceback: str = ""


def error_numbers(result: Acceptance) -> dict[str, float]:
    """The numbers of an acceptance that the error table shows."""
    return {
        "o_rms": result.o.rms_ratio,
        "o_element": result.o.worst_share,
        "state_rms": result.final_state.rms_ratio,
        "state_element": result.final_state.worst_share,
    }


def timing_numbers(timing: Timing) -> dict[str, Any]:
    """The numbers of a timing, raw samples among them."""
    samples = timing.samples
    return {
        "case": timing.case,
        "kernel": timing.kernel,
        "median_us": samples.median,
        "p95_us": samples.p95,
        "least_us": samples.least,
        "enqueue_us": samples.enqueue,
        "runs": len(samples.microseconds),
        "sets": samples.sets,
        "calls_per_run": samples.calls,
        "bytes": timing.nbytes,
        "bandwidth": timing.bandwidth,
        "floor_us": timing.floor,
        "share_of_floor": timing.share_of_floor,
        "runs_below_floor": timing.runs_below_floor,
        "samples_us": [round(sample, 3) for sample in samples.microseconds],
    }


def verdict(checks: Sequence[Check]) -> str:
    """passed, failed or unknown, of all checks together.

    Failed if a check failed, or if a bundle passed none; unknown if a check is, or if there is none.
    """
    count = Counter(check.status for check in checks)
    if count[FAILED] or _idle_bundles(checks):
        return FAILED
    return UNKNOWN if count[UNKNOWN] or not count[PASSED] else PASSED


def document(environment: Mapping[str, Any], checks: Sequence[Check], **more: Any) -> str:
    """Everything as JSON text. Numbers that are not finite become null: JSON has none."""
    counted = Counter(check.status for check in checks)
    whole = {
        "schema": SCHEMA,
        "verdict": verdict(checks),
        "count": {status: counted[status] for status in STATUSES},
        "environment": dict(environment),
        **more,
        "checks": [asdict(check) for check in checks],
    }
    return json.dumps(_finite(whole), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def table(checks: Sequence[Check], *, brief: bool = False) -> str:
    """All checks by section, the error table, the times, those of kernels, what went wrong, and the verdict.

    The brief form has one row of errors, the largest, for each section but that of recorded inputs.
    """
    errors = _largest_errors(checks) if brief else [check for check in checks if "o_rms" in check.numbers]
    parts = [_summary(checks), _errors(errors), _times(checks), _kernels(checks), _troubles(checks)]
    counted = Counter(check.status for check in checks)
    total = ", ".join(f"{counted[status]} {status}" for status in STATUSES if counted[status])
    idle = _idle_bundles(checks)
    parts += [f"no check was passed by {bundle}" for bundle in idle]
    parts.append(f"{verdict(checks).upper()}: {total or 'nothing was checked'}")
    return "\n\n".join(part for part in parts if part) + "\n"


def rows(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in columns: the first ones flush left, numbers flush right."""
    lines = [heads, *lines]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    number = [all(_is_number(line[column]) for line in lines[1:]) for column in range(len(heads))]
    shown = []
    for line in lines:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, number, strict=True)
        ]
        shown.append("  ".join(cells).rstrip())
    return "\n".join(shown)


def _is_number(cell: str) -> bool:
    return cell == "" or cell[0].isdigit() or cell in ("-", "nan", "inf")


def _summary(checks: Sequence[Check]) -> str:
    keys = dict.fromkeys((check.section, check.bundle) for check in checks)
    lines = []
    for section, bundle in keys:
        here = [check for check in checks if (check.section, check.bundle) == (section, bundle)]
        count = Counter(check.status for check in here)
        seconds = sum(check.seconds for check in here)
        lines.append([section, bundle, *(str(count[s] or "") for s in STATUSES), f"{seconds:.1f}"])
    return rows(["section", "bundle", *STATUSES, "seconds"], lines) if lines else ""


def _errors(checks: Sequence[Check]) -> str:
    lines = [
        [check.section, check.bundle, check.name, *(_figure(check.numbers[key]) for key in _ERRORS)]
        for check in checks
    ]
    heads = ["errors", "bundle", "case", "o rms", "o element", "state rms", "state element"]
    return rows(heads, lines) if lines else ""


_ERRORS = ("o_rms", "o_element", "state_rms", "state_element")


def _largest_errors(checks: Sequence[Check]) -> list[Check]:
    """Each recorded input; of every other section of a bundle, the largest of each number."""
    found: dict[tuple[str, ...], Check] = {}
    for check in checks:
        if "o_rms" not in check.numbers:
            continue
        kernel = check.numbers.get("kernel", "")
        key = (check.section, check.bundle, kernel, check.name if check.section == "traces" else "")
        if key in found:
            both = (found[key].numbers, check.numbers)
            worst = {name: _worse(*(numbers[name] for numbers in both)) for name in _ERRORS}
            found[key] = replace(check, name=f"the largest {kernel}".rstrip(), numbers=worst)
        else:
            found[key] = check
    return list(found.values())


def _worse(one: float | None, other: float | None) -> float | None:
    """The larger; what is not a number is worse than any."""
    if one is None or other is None or math.isnan(one) or math.isnan(other):
        return None
    return max(one, other)


def _times(checks: Sequence[Check]) -> str:
    timed = [check for check in checks if "median_us" in check.numbers]
    lines = []
    for check in timed:
        n = check.numbers
        figures = [f"{n[key]:.1f}" for key in ("median_us", "p95_us", "floor_us")]
        share = f"{100 * n['share_of_floor']:.0f}%"
        host = f"{n['enqueue_us']:.1f}"
        lines.append([n["case"], check.bundle, n["kernel"], *figures, share, host, check.status])
    heads = ["times, us", "bundle", "kernel", "median", "p95", "floor", "of floor", "host", ""]
    return rows(heads, lines) if lines else ""


def _kernels(checks: Sequence[Check]) -> str:
    """Each kernel of the calls that a profiler saw; bytes are of its tensors and workspaces, each once."""
    lines = [
        [check.numbers["case"], check.bundle, one["kernel"], f"{one['median_us']:.1f}", f"{one['p95_us']:.1f}",
         f"{one['bytes'] / 1e6:.1f}", f"{100 * one['share_of_bandwidth']:.0f}%"]
        for check in checks for one in check.numbers.get("kernels", ())
    ]  # fmt: skip
    return rows(["kernels, us", "bundle", "kernel", "median", "p95", "MB", "of bandwidth"], lines) if lines else ""


def _troubles(checks: Sequence[Check]) -> str:
    lines = []
    for status in (FAILED, UNKNOWN, REFUSED):
        for check in checks:
            if check.status == status:
                where = " ".join(part for part in (check.section, check.bundle, check.name) if part)
                detail = check.detail if status == FAILED else _shortened(check.detail)
                lines.append(f"{status}: {where}: {detail}")
    return "\n".join(lines)


def _idle_bundles(checks: Sequence[Check]) -> list[str]:
    """Bundles of which something was asked and nothing passed."""
    asked = {check.bundle for check in checks if check.bundle and check.status != SKIPPED}
    return sorted(asked - {check.bundle for check in checks if check.status == PASSED})


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= WIDEST else line[: WIDEST - 3] + "..."


def _figure(value: float | None) -> str:
    return "nan" if value is None else f"{value:.2g}"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
