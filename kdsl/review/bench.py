"""One variant of a bundle on a device of this machine, run through the public functions and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import frozen

from kdsl import kda
from kdsl.bench.device import HOST_L2, NoDevice, torch_here
from kdsl.runtime.targets import acceptable_targets, capability_target
from kdsl.validate import bfloat16
from kdsl.validate.latency import Clock, DeviceClock, HostClock

DECODE_NAMES = {"use_qk_l2norm": "use_qk_l2norm_in_kernel", "beta_sigmoid": "use_beta_sigmoid_in_kernel"}


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
    torch = torch_here(target)
    if target == "cpu":
        return Bench("this machine's CPU", torch.device("cpu"), torch, HOST_L2)
    device = torch.device("cuda", torch.cuda.current_device())
    here = capability_target(*torch.cuda.get_device_capability(device))
    facts = torch.cuda.get_device_properties(device)
    if target not in acceptable_targets(here):
        raise NoDevice(target, f"the GPU here is {facts.name}, {here}")
    return Bench(facts.name, device, torch, getattr(facts, "L2_cache_size", 0) or 64 << 20)
