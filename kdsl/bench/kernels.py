"""The time of each kernel of a call, as PyTorch's profiler sees them on a GPU, and the bytes that it moves."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kdsl.bench.cases import Case
from kdsl.bench.device import Device
from kdsl.bundle.expression import parse_number
from kdsl.bundle.manifest import Kernel, TensorArgument, Variant, WorkspaceArgument
from kdsl.validate.latency import quantile

RUNS = 20


def kernel_times(device: Device, call: Callable[[int], Any], sets: int) -> dict[str, tuple[float, ...]]:
    """Microseconds of every launch in some calls, by the kernel's symbol; none where no profiler is."""
    if not device.is_gpu:
        return {}
    try:
        from torch.profiler import ProfilerActivity, profile

        with warnings.catch_warnings(), profile(activities=[ProfilerActivity.CUDA]) as profiled:
            warnings.simplefilter("ignore")  # that events of earlier cycles are gone: there is one
            for turn in range(RUNS):
                call(turn % sets)
            device.wait()
        events = profiled.events()
    except Exception:  # a PyTorch without CUPTI, or a profiler that another process holds: times of calls stand alone
        return {}
    found: dict[str, list[float]] = {}
    for event in events or ():
        if getattr(event.device_type, "name", "") == "CUDA":
            found.setdefault(event.name, []).append(float(event.time_range.elapsed_us()))
    return {name: tuple(times) for name, times in found.items()}


def kernel_numbers(
    case: Case, variant: Variant, times: Mapping[str, Sequence[float]], bandwidth: float
) -> list[dict[str, Any]]:
    """For each kernel of the variant its median, its launches, and the bytes of its tensors and workspaces, each once,
    as a share of what the bandwidth (bytes per second) lets through in that time. Kernels without times are left out.
    """
    found = []
    for kernel in variant.kernels:
        microseconds = tuple(times.get(kernel.symbol, ()))
        if microseconds:
            median = quantile(microseconds, 0.5)
            nbytes = kernel_bytes(case, variant, kernel)
            found.append({
                "kernel": kernel.name, "median_us": median, "p95_us": quantile(microseconds, 0.95),
                "launches": len(microseconds), "bytes": nbytes,
                "share_of_bandwidth": nbytes / bandwidth * 1e6 / median,
            })  # fmt: skip
    return found


def kernel_bytes(case: Case, variant: Variant, kernel: Kernel) -> int:
    """The bytes of a kernel's tensors and workspaces, each counted once."""
    sizes = {workspace.name: workspace.bytes for workspace in variant.workspace}
    tensors = {a.name for a in kernel.arguments if isinstance(a, TensorArgument)}
    own = {a.name for a in kernel.arguments if isinstance(a, WorkspaceArgument)}
    return sum(map(case.moved, tensors)) + sum(parse_number(sizes[name]).evaluate(case.sizes) for name in own)
