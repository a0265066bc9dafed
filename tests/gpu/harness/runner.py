"""Calls as data (kdsl.validate.call) run through the public functions on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kdsl import kda
from kdsl.bench.device import Device
from kdsl.validate.call import ARRAYS, Call


class Runner:
    """`run(call) -> (o, final_state)` for kdsl.validate, through chunk_kda.

    Each array object of a call has one buffer on the device for as long as calls with it follow one another,
    so an array refilled in place is refilled in place there. What a kernel writes to its inputs is written
    back to the arrays, where the judge looks for it.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._buffers: dict[int, tuple[np.ndarray, Any]] = {}

    def __call__(self, call: Call) -> tuple[np.ndarray, np.ndarray]:
        arguments = self.arguments(call)
        o, final_state = kda.chunk_kda(**arguments)
        self.device.wait()
        results = self.device.to_host(o), None if final_state is None else self.device.to_host(final_state)
        for name in ARRAYS:
            if call.get(name) is not None:
                _write_back(call[name], self.device.to_host(arguments[name]))
        return results

    def arguments(self, call: Call) -> dict[str, Any]:
        """The arguments of chunk_kda that the call means, its arrays as tensors of the device."""
        arguments, used = dict(call), {}
        for name in ARRAYS:
            array = call.get(name)
            if array is None:
                continue
            kept, buffer = self._buffers.get(id(array), (None, None))
            if kept is array:
                buffer.copy_(self.device.to_device(array))
            else:
                buffer = self.device.to_device(array)
            used[id(array)] = (array, buffer)
            arguments[name] = buffer
        self._buffers = used
        return arguments


def _write_back(array: np.ndarray, found: np.ndarray) -> None:
    if array.flags.writeable and array.tobytes() != found.tobytes():
        array[...] = found


def decode(device: Device, call: Mapping[str, Any], **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """(o, pool after the call) of fused_recurrent_kda for arrays and options in one mapping, `pool` among
    them.
    """
    tensors = {
        name: device.to_device(value) if isinstance(value, np.ndarray) else value
        for name, value in call.items()
    }
    pool = tensors.pop("pool")
    o, after = kda.fused_recurrent_kda(
        **tensors, initial_state=pool, output_final_state=True, inplace_final_state=True, **options
    )
    device.wait()
    return device.to_host(o), device.to_host(after)
