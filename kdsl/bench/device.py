"""The device under test: its clock, its facts, and whether it still answers."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import attrs
import numpy as np

from kdsl import __version__
from kdsl.runtime.targets import TARGETS
from kdsl.runtime.workspace import POISON_VARIABLE
from kdsl.validate.latency import Clock, DeviceClock, HostClock, copy_bandwidth

QUERY = (
    "name", "driver_version", "pstate", "clocks.sm", "clocks.max.sm", "clocks.mem", "temperature.gpu",
    "power.draw", "power.limit", "utilization.gpu", "memory.used",
)  # fmt: skip
HOST_L2 = 32 << 20
HOST_COPY = 64 << 20


@attrs.frozen
class NoDevice(Exception):
    """This machine cannot run code for the target."""

    target: str
    reason: str

    def __str__(self) -> str:
        return f"no device here runs code for {self.target}: {self.reason}"


def torch_here(target: str) -> Any:
    """PyTorch. Raises NoDevice if it is not installed, or sees no GPU where the target is one."""
    try:
        import torch
    except ImportError:
        raise NoDevice(target, "PyTorch is not installed; pip install 'kdsl[run]'") from None
    if target != "cpu" and not torch.cuda.is_available():
        raise NoDevice(target, "PyTorch sees no GPU here")
    return torch


class Device:
    """`kind` is "cuda" or "cpu". PyTorch is imported when one is made."""

    def __init__(self, kind: str) -> None:
        import torch

        self.torch = torch
        self.kind = kind
        self.name = torch.device("cpu")
        if kind == "cuda":
            self.name = torch.device("cuda", torch.cuda.current_device())

    @property
    def is_gpu(self) -> bool:
        return self.kind == "cuda"

    @property
    def target(self) -> str:
        """The target that uses all of the device: cpu, sm_90a."""
        return TARGETS[self.kind](self.torch, self.name)

    @cached_property
    def clock(self) -> Clock:
        return DeviceClock(self.torch) if self.is_gpu else HostClock()

    @cached_property
    def l2_bytes(self) -> int:
        if not self.is_gpu:
            return HOST_L2
        return getattr(self.torch.cuda.get_device_properties(self.name), "L2_cache_size", 0) or 64 << 20

    @cached_property
    def bandwidth(self) -> float:
        """Bytes per second of a copy, measured once a process."""
        size = {} if self.is_gpu else {"nbytes": HOST_COPY}
        return copy_bandwidth(self.torch, self.name, self.clock, **size)

    def wait(self) -> None:
        """Wait for all work. Raises what the device has to say of it."""
        if self.is_gpu:
            self.torch.cuda.synchronize()

    def trouble(self) -> str:
        """What the device answers to a harmless question if it no longer works, else ""."""
        try:
            self.wait()
            self.torch.ones(1, device=self.name).add_(1).cpu()
        except Exception as failure:
            return f"{type(failure).__name__}: {failure}"
        return ""

    def to_device(self, array: np.ndarray) -> Any:
        """A tensor with the array's contents; uint16 arrays are bfloat16 patterns."""
        array = np.ascontiguousarray(array)
        if array.dtype == np.uint16:
            patterns = self.torch.from_numpy(array.view(np.int16))
            return patterns.view(self.torch.bfloat16).to(self.name, copy=True)
        return self.torch.from_numpy(array).to(self.name, copy=True)

    def to_host(self, tensor: Any) -> np.ndarray:
        """The tensor's contents; bfloat16 as patterns (uint16)."""
        tensor = tensor.detach().contiguous()
        if tensor.dtype == self.torch.bfloat16:
            return tensor.view(self.torch.int16).cpu().numpy().view(np.uint16)
        return tensor.cpu().numpy()

    def environment(self) -> dict[str, Any]:
        """What ran where: the machine, the device, versions."""
        torch = self.torch
        found = {
            "device": self.kind,
            "host": f"{platform.platform()}, {os.cpu_count()} CPUs",
            "python": sys.version.split()[0],
            "numpy": np.__version__,
            "torch": torch.__version__,
            "kdsl": __version__,
        }
        if not self.is_gpu:
            return found
        facts = torch.cuda.get_device_properties(self.name)
        return found | {
            "gpu": facts.name,
            "capability": f"{facts.major}.{facts.minor}",
            "multiprocessors": facts.multi_processor_count,
            "memory_bytes": facts.total_memory,
            "l2_bytes": self.l2_bytes,
            "cuda_of_torch": torch.version.cuda,
            "copy_bandwidth": self.bandwidth,
            "state": self.state(),
        }

    def state(self) -> dict[str, str]:
        """What nvidia-smi says of clocks, temperature and power; empty where it is not there."""
        if not self.is_gpu or (tool := shutil.which("nvidia-smi")) is None:
            return {}
        asked = [tool, f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader"]
        try:
            said = subprocess.run(asked, capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired) as failure:
            return {"error": str(failure)}
        if said.returncode:
            return {"error": (said.stdout + said.stderr).strip()}
        first = said.stdout.splitlines()[0].split(",")
        return dict(zip(QUERY, (part.strip() for part in first), strict=False))


@contextmanager
def poison(on: bool) -> Iterator[None]:
    """Within it, outputs and workspaces are or are not filled with NaN before every launch."""
    before = os.environ.get(POISON_VARIABLE)
    os.environ[POISON_VARIABLE] = "1" if on else "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[POISON_VARIABLE]
        else:
            os.environ[POISON_VARIABLE] = before


def captured(torch: Any, call: Callable[[], Any]) -> tuple[Any, Any]:
    """A graph of one call of `call`, after warm-up on a stream of its own, and the results it writes."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = call()
    return graph, results
