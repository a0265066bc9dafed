"""The calls that a mutant of generated code is run on: first what `kdsl emulate` draws, then others.

A call comes with the call that the oracle is asked about, where that is another one: offsets outside of the
tokens are clamped, and the oracle takes them clamped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from attrs import frozen

from kdsl.emulate.calls import chunk_call, decode_call
from kdsl.validate import bfloat16

SWITCHES = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True}
SIZES = {"H": 1, "HV": 2, "K": 128, "V": 128}


@frozen(eq=False)
class Tried:
    """`call` goes to the kernels; `judged` is what the oracle computes; `seed` orders warps and copies."""

    name: str
    call: Mapping[str, Any]
    judged: Mapping[str, Any]
    seed: int = 0
    final_state: bool = True  # whether the call wants one


def chunk_calls(settings: Mapping[str, object]) -> tuple[Tried, ...]:
    return tuple(
        make(settings)
        for make in (
            packed,
            rows_without_states,
            views,
            clamped,
            long_memory,
            strongest_gates,
            equal_keys,
            one_hot,
            tiny_rows,
            other_scalars,
            other_order,
        )
    )


def same(name: str, call: Mapping[str, Any], seed: int = 0) -> Tried:
    return Tried(name, call, call, seed)


def packed(settings) -> Tried:
    """Tails, an empty sequence, one of a single token, states: what `kdsl emulate` draws, shorter."""
    return same("packed", chunk_call(np.random.default_rng(11), SIZES, (33, 0, 1, 16), settings))


def rows_without_states(settings) -> Tried:
    """Rows of a batch, whose decays are slow: later chunks see what earlier ones wrote."""
    call = dict(chunk_call(np.random.default_rng(12), {**SIZES, "B": 2, "T": 37}, None, settings))
    call["g"] = stored(np.random.default_rng(19).normal(-6.0, 1.0, call["g"].shape), call["g"].dtype)
    return same(
        "rows", {name: value for name, value in call.items() if name not in ("initial_state", "dt_bias")}
    )


def views(settings) -> Tried:
    """Tokens that do not lie side by side, and a token before the first sequence is nobody's."""
    call = dict(chunk_call(np.random.default_rng(13), SIZES, (18, 20), settings))
    for name in ("q", "k", "v", "g", "beta"):
        wide = np.zeros(
            (call[name].shape[0], 2 * call[name].shape[1], *call[name].shape[2:]), call[name].dtype
        )
        wide[:, ::2] = call[name]
        call[name] = wide[:, ::2]
    return same("views", call)


def clamped(settings) -> Tried:
    """Offsets outside of the tokens."""
    call = dict(chunk_call(np.random.default_rng(14), SIZES, (21, 17), settings))
    right = call["cu_seqlens"]
    outside = np.array([-7, right[1], right[2] + 40], np.int64)
    return Tried("clamped", {**call, "cu_seqlens": outside}, call)


def long_memory(settings) -> Tried:
    """Six chunks and decays near one: what the first chunk wrote is still there in the last."""
    call = dict(chunk_call(np.random.default_rng(15), {**SIZES, "HV": 1}, (95,), settings))
    return same("long", {**call, "g": stored(np.full(call["g"].shape, -8.0), call["g"].dtype)})


def strongest_gates(settings) -> Tried:
    call = dict(chunk_call(np.random.default_rng(16), {**SIZES, "HV": 1}, (40,), settings))
    return same("strong gates", {**call, "g": stored(np.full(call["g"].shape, 9.0), call["g"].dtype)})


def equal_keys(settings) -> Tried:
    rng = np.random.default_rng(17)
    call = dict(chunk_call(rng, {**SIZES, "HV": 1}, (48,), settings))
    shape = call["k"].shape
    keys = rng.standard_normal(shape[-1]) + 0.3 * rng.standard_normal(shape)
    return same("equal keys", {**call, "k": stored(keys, call["k"].dtype)})


def one_hot(settings) -> Tried:
    """A channel of the keys for each token: no term of a sum can be left out."""
    call = dict(chunk_call(np.random.default_rng(33), {**SIZES, "HV": 1}, (128,), settings))
    rows = np.eye(128)[None, :, None, :]
    slow = stored(np.full(call["g"].shape, -8.0), call["g"].dtype)
    return same(
        "one-hot rows",
        {
            **call,
            "k": stored(rows, call["k"].dtype),
            "g": slow,
            "q": stored(np.roll(rows, 1, 1), call["q"].dtype),
        },
    )


def tiny_rows(settings) -> Tried:
    """Rows of zeros and rows as small as the epsilon of their norm."""
    call = dict(chunk_call(np.random.default_rng(34), {**SIZES, "HV": 1}, (24,), settings))
    return same("tiny rows", {**call, **tiny(call, np.random.default_rng(35), 1)})


def tiny(call: Mapping[str, Any], rng: np.random.Generator, axis: int) -> dict[str, np.ndarray]:
    found = {}
    for name in ("q", "k"):
        shape = [1] * call[name].ndim
        shape[axis] = call[name].shape[axis]
        size = np.resize([2.0**-12, 0.0, 2.0**-10], shape[axis]).reshape(shape)
        found[name] = stored(rng.standard_normal(call[name].shape) * size, call[name].dtype)
    return found


def other_scalars(settings) -> Tried:
    """Another scale, a weaker bound, no final state."""
    call = dict(chunk_call(np.random.default_rng(18), SIZES, (19, 14), settings))
    if "lower_bound" in call:
        call["lower_bound"] = -2.0
    call["scale"] = 0.3
    return Tried("scalars", call, call, final_state=False)


def other_order(settings) -> Tried:
    """The first call with warps, blocks and copies in another order."""
    first = packed(settings)
    return same("other order", first.call, seed=5)


def decode_calls(settings: Mapping[str, object]) -> tuple[Tried, ...]:
    return tuple(
        make(settings)
        for make in (
            skipped_row,
            speculative,
            dropped_slots,
            no_slots,
            outside_slots,
            rows_of_views,
            one_hot_token,
            tiny_tokens,
        )
    )


def skipped_row(settings) -> Tried:
    return same("slots", decode_call(np.random.default_rng(21), {**SIZES, "N": 3, "T": 2}, settings))


def speculative(settings) -> Tried:
    """A slot for each token; how many of the last call's were accepted."""
    call = dict(decode_call(np.random.default_rng(22), {**SIZES, "N": 3, "T": 3}, settings))
    pool = np.random.default_rng(23).normal(0, 0.25, (12, *call["pool"].shape[1:])).astype(np.float32)
    accepted = np.array([1, 3, 2], np.int64)
    slots = np.array([[3, 1, 7], [2, -1, 11], [5, 8, 4]], np.int64)
    outside = np.array([[3, 1, 7], [2, 12, 11], [5, 8, 4]], np.int64)
    call |= {"pool": pool, "num_accepted_tokens": accepted}
    return Tried("speculative", {**call, "ssm_state_indices": outside}, {**call, "ssm_state_indices": slots})


def dropped_slots(settings) -> Tried:
    """A negative slot of a token drops that write; a row whose last state is nowhere writes nothing."""
    call = dict(speculative(settings).judged)
    slots = call["ssm_state_indices"].copy()
    slots[0, 0] = -1
    return same("dropped slots", {**call, "ssm_state_indices": slots})


def no_slots(settings) -> Tried:
    call = dict(decode_call(np.random.default_rng(24), {**SIZES, "N": 2, "T": 1}, settings))
    return same("own slots", {name: value for name, value in call.items() if name != "ssm_state_indices"})


def outside_slots(settings) -> Tried:
    """A slot beyond the pool is no slot, as a negative one."""
    call = dict(decode_call(np.random.default_rng(25), {**SIZES, "N": 3, "T": 1}, settings))
    inside = call["ssm_state_indices"]
    outside, none = inside.copy(), inside.copy()
    outside[1], none[1] = len(call["pool"]), -1
    return Tried("slots outside", {**call, "ssm_state_indices": outside}, {**call, "ssm_state_indices": none})


def rows_of_views(settings) -> Tried:
    call = dict(decode_call(np.random.default_rng(26), {**SIZES, "N": 2, "T": 2}, settings))
    for name in ("q", "k", "v", "g", "beta"):
        wide = np.zeros((2 * call[name].shape[0], *call[name].shape[1:]), call[name].dtype)
        wide[::2] = call[name]
        call[name] = wide[::2]
    return same("views", call, seed=5)


def one_hot_token(settings) -> Tried:
    call = dict(decode_call(np.random.default_rng(27), {**SIZES, "HV": 1, "N": 16, "T": 8}, settings))
    rows = np.eye(128).reshape(16, 8, 1, 128)
    slow = stored(np.full(call["g"].shape, -8.0), call["g"].dtype)
    return same(
        "one-hot rows",
        {
            **call,
            "k": stored(rows, call["k"].dtype),
            "g": slow,
            "q": stored(np.roll(rows, 1, 1), call["q"].dtype),
        },
    )


def tiny_tokens(settings) -> Tried:
    call = dict(decode_call(np.random.default_rng(28), {**SIZES, "HV": 1, "N": 3, "T": 2}, settings))
    return same("tiny rows", {**call, **tiny(call, np.random.default_rng(29), 1)})


def stored(array: np.ndarray, dtype) -> np.ndarray:
    return bfloat16.encode(array) if dtype == np.uint16 else array.astype(dtype)


CALLS: dict[str, Callable[[Mapping[str, object]], tuple[Tried, ...]]] = {
    "kda.chunk_forward": chunk_calls,
    "kda.decode": decode_calls,
}
