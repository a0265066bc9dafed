"""One variant of a bundle on a device of this machine, run through the public functions and nothing else."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen

from kdsl import kda
from kdsl.bundle.load import Bundle
from kdsl.bundle.manifest import Variant
from kdsl.bundle.write import write_bundle
from kdsl.runtime.targets import acceptable_targets, capability_target
from kdsl.validate import bfloat16
from kdsl.validate.latency import Clock, DeviceClock, HostClock

DECODE_NAMES = {"use_qk_l2norm": "use_qk_l2norm_in_kernel", "beta_sigmoid": "use_beta_sigmoid_in_kernel"}


@frozen
class NoDevice(Exception):
    """This machine cannot run the variant."""

    target: str
    reason: str

    def __str__(self) -> str:
        return f"validating {self.target} needs such a device: {self.reason}"


@frozen(eq=False)
class Bench:
    """A device that runs the variant: `name` is what verdicts call it."""

    name: str
    device: Any
    torch: Any
    l2_bytes: int

    @property
    def clock(self) -> Clock:
        return HostClock() if self.device.type == "cpu" else DeviceClock(self.torch)

    def to_device(self, value: Any) -> Any:
        """An array as a tensor there (uint16 is bfloat16); anything else as it is."""
        if not isinstance(value, np.ndarray):
            return value
        array = np.ascontiguousarray(value)
        if array.dtype == np.uint16:
            return self.torch.from_numpy(array.view(np.int16)).view(self.torch.bfloat16).to(self.device, copy=True)
        return self.torch.from_numpy(array).to(self.device, copy=True)

    def patterns(self, tensor: Any) -> np.ndarray:
        """The contents as they lie there: bfloat16 as uint16."""
        if tensor.dtype == self.torch.bfloat16:
            return tensor.contiguous().view(self.torch.int16).cpu().numpy().view(np.uint16)
        return tensor.cpu().numpy()

    def to_host(self, tensor: Any) -> np.ndarray:
        """The values; bfloat16 as float32."""
        found = self.patterns(tensor)
        return bfloat16.decode(found) if found.dtype == np.uint16 else found

    def chunk(self, call: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """A runner as `kdsl.validate.call` has them; what a kernel writes into its inputs is in `call` afterwards."""
        arguments = self.chunk_arguments(call)
        o, state = kda.chunk_kda(**arguments)
        for name, value in call.items():
            if isinstance(value, np.ndarray):
                value[...] = self.patterns(arguments[name])
        return self.to_host(o), self.to_host(state)

    def decode(self, call: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """A call of `kdsl.validate.oracle.decode` through the public function."""
        o, pool = kda.fused_recurrent_kda(**self.decode_arguments(call))
        return self.to_host(o), self.to_host(pool)

    def chunk_arguments(self, call: Mapping[str, Any]) -> dict[str, Any]:
        return {**{name: self.to_device(value) for name, value in call.items()}, "output_final_state": True}

    def decode_arguments(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """In the public function's names; the pool is updated in place."""
        found = {DECODE_NAMES.get(name, name): self.to_device(value) for name, value in call.items()}
        gate, pool = found.pop("gate"), found.pop("pool")
        if gate != "precomputed":
            found["use_gate_in_kernel"] = True
        return {**found, "initial_state": pool, "inplace_final_state": True, "output_final_state": True}


def bench(target: str) -> Bench:
    """The device of this machine that runs the target's code. Raises NoDevice."""
    try:
        import torch
    except ImportError:
        raise NoDevice(target, "PyTorch is not installed; pip install 'kdsl[run]'") from None
    if target == "cpu":
        return Bench("this machine's CPU", torch.device("cpu"), torch, 32 << 20)
    if not torch.cuda.is_available():
        raise NoDevice(target, "PyTorch sees no GPU here")
    device = torch.device("cuda", torch.cuda.current_device())
    here = capability_target(*torch.cuda.get_device_capability(device))
    facts = torch.cuda.get_device_properties(device)
    if target not in acceptable_targets(here):
        raise NoDevice(target, f"the GPU here is {facts.name}, {here}")
    return Bench(facts.name, device, torch, getattr(facts, "L2_cache_size", 0) or 64 << 20)


@contextmanager
def alone(bundle: Bundle, variant: Variant) -> Iterator[None]:
    """The variant as the only one that the public functions know; nothing is compiled meanwhile."""
    kept = {name: os.environ.get(name) for name in (kda.COMPILE_VARIABLE, "KDSL_BUNDLES")}
    with tempfile.TemporaryDirectory(prefix="kdsl-") as folder:
        files = {name: bundle.file(name) for name in bundle.manifest.files if name.startswith(f"{variant.id}/")}
        path = write_bundle(Path(folder) / "one.kdsb", evolve(bundle.manifest, variants=(variant,)), files)
        os.environ[kda.COMPILE_VARIABLE] = "0"
        os.environ.pop("KDSL_BUNDLES", None)
        kda.forget_bundles()
        kda.use_bundle(path)
        try:
            yield
        finally:
            kda.forget_bundles()
            for name, value in kept.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
