"""Metrics of Nsight Compute for the kernels of one variant, where `ncu` is at hand.

A second process runs the variant once under the profiler; what it prints as CSV is read here. Metric names: "Nsight
Compute CLI" and its `--query-metrics`.
"""

from __future__ import annotations

import csv
import io
import math
import shutil
import subprocess
import sys
from collections.abc import Sequence

from attrs import evolve, frozen

from kdsl.bundle.load import Bundle
from kdsl.bundle.manifest import Variant
from kdsl.contract.predicates import TABLE
from kdsl.contract.verdict import Fact
from kdsl.source.diagnostic import Evidence

# Predicates of `measure`: shares of 1, of which ncu gives percent, and bytes.
METRICS = {
    "l1_hit_rate": "l1tex__t_sector_hit_rate.pct",
    "achieved_occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "tensor_core_utilisation": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "dram_bytes": "dram__bytes.sum",
}
RUN = "import sys; from kdsl.review.profiler import run_once; run_once(*sys.argv[1:])"


@frozen
class NoProfiler(Exception):
    """Nothing was profiled, and why."""

    reason: str

    def __str__(self) -> str:
        return self.reason


def profile(bundle: Bundle, variant: Variant, device: str, wanted: Sequence[str]):
    """Facts of the rule, the lowest share or the sum of its kernels, and of each (`l1_hit_rate at recurrence`); and for
    every predicate without one the reason."""
    try:
        return facts_of(profiled(bundle, variant, wanted), variant, device, wanted), {}
    except NoProfiler as failure:
        if len(wanted) == 1:
            return {}, {wanted[0]: str(failure)}
    facts, notes = {}, {}  # one metric that this GPU does not have hides the others no longer
    for name in wanted:
        found, missing = profile(bundle, variant, device, [name])
        facts |= found
        notes |= missing
    return facts, notes


def profiled(bundle: Bundle, variant: Variant, wanted: Sequence[str]) -> str:
    """What ncu prints of one run of the variant. Raises NoProfiler."""
    tool = shutil.which("ncu")
    if tool is None:
        raise NoProfiler("ncu (Nsight Compute) is not on the path")
    metrics = ",".join(METRICS[name] for name in wanted)
    symbols = "|".join(kernel.symbol for kernel in variant.kernels)
    # The clocks stay as they are: others may share the GPU, and shares do not depend on them.
    options = ["--csv", "--print-units", "base", "--clock-control", "none", "--kernel-name", f"regex:^({symbols})$"]
    options += ["--metrics", metrics]
    command = [tool, *options, sys.executable, "-c", RUN, str(bundle.path), variant.id]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines() or [f"status {done.returncode}"]
        errors = [line.removeprefix("==ERROR==").strip() for line in said if line.startswith("==ERROR==")]
        raise NoProfiler(f"ncu failed: {(errors or said[-1:])[0]}")
    return done.stdout


def facts_of(text: str, variant: Variant, device: str, wanted: Sequence[str]) -> dict[str, Fact]:
    """What ncu printed, as facts of the variant's kernels. Raises NoProfiler if a kernel is not in it."""
    kernels = {kernel.symbol: kernel.name for kernel in variant.kernels}
    names = {METRICS[name]: name for name in wanted}
    found: dict[str, Fact] = {}
    for row in rows_of(text):
        kernel, name = kernels.get(row.get("Kernel Name", "")), names.get(row.get("Metric Name", ""))
        value = number(row.get("Metric Value"))
        if kernel is not None and name is not None and value is not None:
            value = int(value) if TABLE[name].unit else value / 100
            found[f"{name} at {kernel}"] = Fact(value, TABLE[name].unit, Evidence.MEASURED, f"ncu on {device}")
    for name in wanted:
        parts = [found.get(f"{name} at {kernel}") for kernel in kernels.values()]
        if any(part is None for part in parts):
            raise NoProfiler(f"ncu gave no {METRICS[name]} for every kernel")
        combine = {"min": min, "sum": sum}[TABLE[name].combine]
        found[name] = evolve(parts[0], value=combine(part.value for part in parts))
    return found


def number(text: str | None) -> float | None:
    """None for what is no number, as `n/a` where a kernel has no such access."""
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def rows_of(text: str):
    """The rows of ncu's CSV; lines before its head are of the program and of ncu itself."""
    lines = text.splitlines()
    head = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    return csv.DictReader(io.StringIO("\n".join(lines[head:]))) if head is not None else ()


def run_once(path: str, variant: str) -> None:
    """What runs under the profiler: one call of the variant, the one whose latency is taken."""
    from kdsl.bench.alone import alone
    from kdsl.bundle.load import read_bundle
    from kdsl.review.bench import bench
    from kdsl.review.timing import timed_call

    bundle = read_bundle(path)
    chosen = bundle.variant(variant)
    place = bench(chosen.target)
    call = timed_call(bundle.manifest.operator, chosen, place.device.type)
    with alone(bundle, chosen):
        (place.decode if bundle.manifest.operator == "kda.decode" else place.chunk)(call)
