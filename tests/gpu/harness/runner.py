"""Calls as data (kdsl.validate.call) run through the public functions on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kdsl import kda
from kdsl.bench.device import Device
from kdsl.runtime import NoVariant
from kdsl.validate.call import ARRAYS, Call

MANY_HEADS = 96  # as many tasks as the rules for many heads want on an H200
HEAD_AXIS = {"q": 2, "k": 2, "v": 2, "g": 2, "beta": 2, "A_log": 0, "dt_bias": 0, "initial_state": 1}


class Runner:
    """`run(call) -> (o, final_state)` for kdsl.validate, through chunk_kda.

    Each array object of a call has one buffer on the device for as long as calls with it follow one another,
    so an array refilled in place is refilled in place there. What a kernel writes to its inputs is written
    back to the arrays, where the judge looks for it. A bundle for many heads that takes no call of so few gets the
    same heads several times, and has to give the same results for all.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._buffers: dict[int, tuple[np.ndarray, Any]] = {}

    def __call__(self, call: Call) -> tuple[np.ndarray, np.ndarray]:
        arguments = self.arguments(call)
        try:
            o, final_state = kda.chunk_kda(**arguments)
        except NoVariant as refusal:
            o, final_state = repeated(arguments, refusal)
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


def repeated(arguments: Mapping[str, Any], refusal: NoVariant) -> tuple[Any, Any]:
    """Results of the call, taken from one whose heads are there several times. Raises the refusal where a variant
    wants other things than more heads, or still takes no call."""
    heads, (_, (o, state)) = arguments["v"].shape[2], with_more_heads(arguments, refusal)
    return first_of(o, 2, heads), None if state is None else first_of(state, 1, heads)


def widened(arguments: Mapping[str, Any], refusal: NoVariant) -> dict[str, Any]:
    """The call with its heads several times, as many as a rule for many heads wants. Raises the refusal where a variant
    wants other things than more heads."""
    heads = arguments["v"].shape[2]
    sequences = arguments["q"].shape[0] if arguments.get("cu_seqlens") is None else len(arguments["cu_seqlens"]) - 1
    times = -(-MANY_HEADS // max(heads * sequences, 1))
    if not any(f"HV = {heads}" in line and "HV * N >" in line for line in refusal.refusals) or times < 2:
        raise refusal
    return {
        name: value.repeat(tuple(times if axis == HEAD_AXIS[name] else 1 for axis in range(value.ndim)))
        if HEAD_AXIS.get(name) is not None and value is not None else value
        for name, value in arguments.items()
    }  # fmt: skip


def taken(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Any, Any]]:
    """The call, or the one with more heads if only that is taken, and its results. Raises NoVariant."""
    try:
        return dict(arguments), kda.chunk_kda(**arguments)
    except NoVariant as refusal:
        return with_more_heads(arguments, refusal)


def with_more_heads(arguments: Mapping[str, Any], refusal: NoVariant) -> tuple[dict[str, Any], tuple[Any, Any]]:
    """The call with its heads several times, and its results. Raises the refusal where that one is refused as well."""
    wide = widened(arguments, refusal)
    try:
        return wide, kda.chunk_kda(**wide)
    except NoVariant:
        raise refusal from None


def first_of(result: Any, axis: int, heads: int) -> Any:
    """The first heads of a result in which all heads are there several times. Raises ValueError where they differ."""
    first, *others = result.split(heads, dim=axis)
    bits = first.contiguous().view(dtype_of_bits(first))
    for other in others:
        if not (other.contiguous().view(bits.dtype) == bits).all():
            raise ValueError("the same heads have other results in another place")
    return first


def dtype_of_bits(tensor: Any) -> Any:
    import torch

    return {2: torch.int16, 4: torch.int32}[tensor.element_size()]


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
