"""Metrics of Nsight Compute for the kernels of one variant, where `ncu` is at hand.

A second process runs the variant once under the profiler; what it prints as CSV is read here. Metric names: "Nsight
Compute CLI" and its `--query-metrics`.
"""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Sequence

from attrs import frozen

from kdsl.bundle.load import Bundle
from kdsl.bundle.manifest import Variant
from kdsl.contract.verdict import Fact
from kdsl.source.diagnostic import Evidence

# Predicates of `measure`, each a share of 1; ncu gives percent.
METRICS = {
    "l1_hit_rate": "l1tex__t_sector_hit_rate.pct",
    "achieved_occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "tensor_core_utilisation": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
}
RUN = "import sys; from kdsl.review.profiler import run_once; run_once(*sys.argv[1:])"


@frozen
class NoProfiler(Exception):
    """Nothing was profiled, and why."""

    reason: str

    def __str__(self) -> str:
        return self.reason


def profile(bundle: Bundle, variant: Variant, device: str, wanted: Sequence[str]) -> dict[str, Fact]:
    """Facts by predicate and by kernel: the rule's own is the lowest of its kernels. Raises NoProfiler."""
    tool = shutil.which("ncu")
    if tool is None:
        raise NoProfiler("ncu (Nsight Compute) is not on the path")
    metrics = ",".join(METRICS[name] for name in wanted)
    command = [tool, "--csv", "--metrics", metrics, sys.executable, "-c", RUN, str(bundle.path), variant.id]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise NoProfiler(f"ncu failed: {said[-1] if said else f'status {done.returncode}'}")
    return facts_of(done.stdout, variant, device, wanted)


def facts_of(text: str, variant: Variant, device: str, wanted: Sequence[str]) -> dict[str, Fact]:
    """What ncu printed, as facts of the variant's kernels. Raises NoProfiler if a kernel is not in it."""
    kernels = {kernel.symbol: kernel.name for kernel in variant.kernels}
    names = {METRICS[name]: name for name in wanted}
    found: dict[str, Fact] = {}
    for row in rows_of(text):
        kernel, name = kernels.get(row.get("Kernel Name", "")), names.get(row.get("Metric Name", ""))
        if kernel is not None and name is not None:
            share = float(row["Metric Value"].replace(",", "")) / 100
            found[f"{kernel}/{name}"] = Fact(share, "", Evidence.MEASURED, f"ncu on {device}")
    for name in wanted:
        parts = [found.get(f"{kernel}/{name}") for kernel in kernels.values()]
        if any(part is None for part in parts):
            raise NoProfiler(f"ncu gave no {METRICS[name]} for every kernel")
        found[name] = min(parts, key=lambda fact: fact.value)
    return found


def rows_of(text: str):
    """The rows of ncu's CSV; lines before its head are of the program and of ncu itself."""
    lines = text.splitlines()
    head = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    return csv.DictReader(io.StringIO("\n".join(lines[head:]))) if head is not None else ()


def run_once(path: str, variant: str) -> None:
    """What runs under the profiler: one call of the variant."""
    import numpy as np

    from kdsl.bundle.load import read_bundle
    from kdsl.emulate import calls
    from kdsl.review.bench import alone, bench

    bundle = read_bundle(path)
    chosen = bundle.variant(variant)
    place, settings = bench(chosen.target), {**chosen.options, **chosen.dtypes}
    rng = np.random.default_rng(0)
    with alone(bundle, chosen):
        if bundle.manifest.operator == "kda.decode":
            place.decode(calls.decode_call(rng, {**calls.SIZES, **chosen.sizes, "N": 64, "H": 16}, settings))
        else:
            place.chunk(calls.chunk_call(rng, {**calls.SIZES, **chosen.sizes, "T": 4096, "H": 16}, None, settings))
