"""Calls on which generated code is tried before it may go into a bundle: each shows faults that the others hide.

A call comes with the call that the oracle is asked about, where that is another one: offsets outside of the tokens are
clamped, and the oracle takes them clamped. To add a kind, write a function and name it in CALLS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from attrs import frozen

from kdsl.emulate.calls import chunk_call, decode_call
from kdsl.validate import bfloat16

SIZES = {"H": 1, "HV": 2, "K": 128, "V": 128}
Settings = Mapping[str, object]


@frozen(eq=False)
class Tried:
    """`call` goes to the kernels; `judged` is what the oracle computes; `seed` orders warps and copies."""

    name: str
    call: Mapping[str, Any]
    judged: Mapping[str, Any]
    seed: int = 0
    final_state: bool = True  # whether the call wants one


SLOW, STRONG = (-8.0, -3e-4), (9.0, -20.0)  # of a gate: what goes into its formula, or the log decay itself


def gates(call: Mapping[str, Any], settings: Settings, values: tuple[float, float]) -> np.ndarray:
    """The same gate for every channel of every token."""
    return stored(np.full(call["g"].shape, values[settings.get("gate") == "precomputed"]), call["g"].dtype)


def same(name: str, call: Mapping[str, Any], seed: int = 0) -> Tried:
    return Tried(name, call, call, seed)


def packed(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    """Tails, an empty sequence, one of a single token, states: what `kdsl emulate` draws, shorter. The last one starts
    late and has more chunks than a ring has slots."""
    return same("packed", chunk_call(np.random.default_rng([seed, 11]), sizes, (33, 0, 1, 70), settings))


def rows_without_states(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    """Rows of a batch, whose decays are slow: later chunks see what earlier ones wrote."""
    call = dict(chunk_call(np.random.default_rng([seed, 12]), {**sizes, "B": 2, "T": 37}, None, settings))
    call["g"] = gates(call, settings, SLOW)
    return same(
        "rows", {name: value for name, value in call.items() if name not in ("initial_state", "dt_bias")}
    )


def views(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    """Tokens that do not lie side by side, and a token before the first sequence is nobody's."""
    call = dict(chunk_call(np.random.default_rng([seed, 13]), sizes, (18, 20), settings))
    return same("views", {**call, **apart(call)})


def apart(call: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The tensors of tokens as every other row of larger ones."""
    found = {}
    for name in ("q", "k", "v", "g", "beta"):
        batch, tokens, *rest = call[name].shape
        wide = np.zeros((batch, 2 * tokens, *rest), call[name].dtype)
        wide[:, ::2] = call[name]
        found[name] = wide[:, ::2]
    return found


def clamped(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    """Offsets outside of the tokens."""
    call = dict(chunk_call(np.random.default_rng([seed, 14]), sizes, (21, 17), settings))
    right = call["cu_seqlens"]
    outside = np.array([-7, right[1], right[2] + 40], np.int64)
    return Tried("clamped", {**call, "cu_seqlens": outside}, call)


def long_memory(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    """Six chunks and decays near one: what the first chunk wrote is still there in the last."""
    call = dict(chunk_call(np.random.default_rng([seed, 15]), {**sizes, "HV": 1}, (95,), settings))
    return same("long", {**call, "g": gates(call, settings, SLOW)})


def long_sequence(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    """More than a thousand tokens, a tail among them: decays near one, a state in and out."""
    call = dict(chunk_call(np.random.default_rng([seed, 41]), {**sizes, "HV": 1}, (1029,), settings))
    return same("a long sequence", {**call, "g": gates(call, settings, SLOW)})


def long_row(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    """The same without offsets and states, the gate as drawn, in another order."""
    call = chunk_call(np.random.default_rng([seed, 42]), {**sizes, "HV": 1, "B": 1, "T": 1090}, None, settings)
    kept = {name: value for name, value in call.items() if name not in ("initial_state", "dt_bias")}
    return same("a long row", kept, seed=5)


def long_views(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    """Tokens that do not lie side by side, more value heads than heads."""
    call = dict(chunk_call(np.random.default_rng([seed, 43]), sizes, (1041,), settings))
    return same("long views", {**call, **apart(call)})


def many_sequences(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    """States of 128 heads in all: tails, empty sequences, single tokens, three chunks with decays near one, and once
    eleven: four groups of warps that take chunks in turn have two or three of them each. It is the last one, and ends
    within a chunk: what reads on is outside of the tensor."""
    call = dict(chunk_call(np.random.default_rng([seed, 44]), sizes, (33, 0, 1, 16) * 15 + (33, 0, 16, 167), settings))
    return same("many sequences", {**call, "g": gates(call, settings, SLOW)})


def many_heads(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    """Tokens that do not lie side by side, 128 value heads, in another order."""
    call = dict(chunk_call(np.random.default_rng([seed, 45]), {**sizes, "HV": 128}, (21,), settings))
    return same("many heads", {**call, **apart(call)}, seed=5)


def many_rows(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    """The same number of rows of a batch, without offsets and states."""
    call = chunk_call(np.random.default_rng([seed, 46]), {**sizes, "HV": 1, "B": 128, "T": 19}, None, settings)
    kept = {name: value for name, value in call.items() if name not in ("initial_state", "dt_bias")}
    return same("many rows", kept)


def uneven_sequences(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    """Few sequences of 32 heads each, two of one length: what starts the longest first has each of them once."""
    call = chunk_call(np.random.default_rng([seed, 48]), {**sizes, "HV": 32}, (21, 5, 0, 37, 21), settings)
    return same("uneven sequences", call)


def many_one_hot(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    """A channel of the keys for each token of a chunk, all of them in eight sequences with states."""
    call = dict(chunk_call(np.random.default_rng([seed, 47]), {**sizes, "HV": 1}, (16,) * 128, settings))
    rows = np.resize(np.eye(sizes["K"]), (16 * 128, sizes["K"]))[None, :, None, :]
    return with_rows(call, rows, settings)


def strongest_gates(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    call = dict(chunk_call(np.random.default_rng([seed, 16]), {**sizes, "HV": 1}, (40,), settings))
    return same("strong gates", {**call, "g": gates(call, settings, STRONG)})


def equal_keys(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    rng = np.random.default_rng([seed, 17])
    call = dict(chunk_call(rng, {**sizes, "HV": 1}, (48,), settings))
    shape = call["k"].shape
    keys = rng.standard_normal(shape[-1]) + 0.3 * rng.standard_normal(shape)
    keys *= 1.0 if settings.get("use_qk_l2norm_in_kernel", True) else shape[-1] ** -0.5
    return same("equal keys", {**call, "k": stored(keys, call["k"].dtype)})


def one_hot(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    """A channel of the keys for each token: no term of a sum can be left out."""
    call = dict(chunk_call(np.random.default_rng([seed, 33]), {**sizes, "HV": 1}, (sizes["K"],), settings))
    rows = np.eye(sizes["K"])[None, :, None, :]
    return with_rows(call, rows, settings)


def with_rows(call: Mapping[str, Any], rows: np.ndarray, settings: Settings) -> Tried:
    """These rows as keys, each a token later as a query, and decays that are slow."""
    keys, queries = stored(rows, call["k"].dtype), stored(np.roll(rows, 1, 1), call["q"].dtype)
    return same("one-hot rows", {**call, "k": keys, "q": queries, "g": gates(call, settings, SLOW)})


def tiny_rows(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    """Rows of zeros and rows as small as the epsilon of their norm."""
    call = dict(chunk_call(np.random.default_rng([seed, 34]), {**sizes, "HV": 1}, (24,), settings))
    return same("tiny rows", {**call, **tiny(call, np.random.default_rng([seed, 35]), 1)})


def tiny(call: Mapping[str, Any], rng: np.random.Generator, axis: int) -> dict[str, np.ndarray]:
    found = {}
    for name in ("q", "k"):
        shape = [1] * call[name].ndim
        shape[axis] = call[name].shape[axis]
        size = np.resize([2.0**-12, 0.0, 2.0**-10], shape[axis]).reshape(shape)
        found[name] = stored(rng.standard_normal(call[name].shape) * size, call[name].dtype)
    return found


def other_scalars(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    """Another scale, a weaker bound, no final state."""
    call = dict(chunk_call(np.random.default_rng([seed, 18]), sizes, (19, 14), settings))
    if "lower_bound" in call:
        call["lower_bound"] = -2.0
    call["scale"] = 0.3
    return Tried("scalars", call, call, final_state=False)


def other_order(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    """The first call with warps, blocks and copies in another order."""
    first = packed(settings, sizes, seed)
    return same("other order", first.call, seed=5)


def skipped_row(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    return same("slots", decode_call(np.random.default_rng([seed, 21]), {**sizes, "N": 3, "T": 2}, settings))


def speculative(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    """A slot for each token; how many of the last call's were accepted."""
    call = dict(decode_call(np.random.default_rng([seed, 22]), {**sizes, "N": 3, "T": 3}, settings))
    pool = np.random.default_rng([seed, 23]).normal(0, 0.25, (12, *call["pool"].shape[1:]))
    pool = stored(pool, call["pool"].dtype)
    accepted = np.array([1, 3, 2], np.int64)
    slots = np.array([[3, 1, 7], [2, -1, 11], [5, 8, 4]], np.int64)
    outside = np.array([[3, 1, 7], [2, 12, 11], [5, 8, 4]], np.int64)
    call |= {"pool": pool, "num_accepted_tokens": accepted}
    return Tried("speculative", {**call, "ssm_state_indices": outside}, {**call, "ssm_state_indices": slots})


def dropped_slots(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    """A negative slot of a token drops that write; a row whose last state is nowhere writes nothing."""
    call = dict(speculative(settings, sizes, seed).judged)
    slots = call["ssm_state_indices"].copy()
    slots[0, 0] = -1
    return same("dropped slots", {**call, "ssm_state_indices": slots})


def no_slots(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    call = dict(decode_call(np.random.default_rng([seed, 24]), {**sizes, "N": 2, "T": 1}, settings))
    return same("own slots", {name: value for name, value in call.items() if name != "ssm_state_indices"})


def outside_slots(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    """A slot beyond the pool is no slot, as a negative one."""
    call = dict(decode_call(np.random.default_rng([seed, 25]), {**sizes, "N": 3, "T": 1}, settings))
    inside = call["ssm_state_indices"]
    outside, none = inside.copy(), inside.copy()
    outside[1], none[1] = len(call["pool"]), -1
    return Tried("slots outside", {**call, "ssm_state_indices": outside}, {**call, "ssm_state_indices": none})


def rows_of_views(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    call = dict(decode_call(np.random.default_rng([seed, 26]), {**sizes, "N": 2, "T": 2}, settings))
    for name in ("q", "k", "v", "g", "beta"):
        wide = np.zeros((2 * call[name].shape[0], *call[name].shape[1:]), call[name].dtype)
        wide[::2] = call[name]
        call[name] = wide[::2]
    return same("views", call, seed=5)


def one_hot_token(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    rows = {**sizes, "HV": 1, "N": sizes["K"] // 8, "T": 8}
    call = dict(decode_call(np.random.default_rng([seed, 27]), rows, settings))
    rows = np.eye(sizes["K"]).reshape(-1, 8, 1, sizes["K"])
    return with_rows(call, rows, settings)


def tiny_tokens(settings: Settings, sizes: Mapping[str, int], seed: int) -> Tried:
    call = dict(decode_call(np.random.default_rng([seed, 28]), {**sizes, "HV": 1, "N": 3, "T": 2}, settings))
    return same("tiny rows", {**call, **tiny(call, np.random.default_rng([seed, 29]), 1)})


def stored(array: np.ndarray, dtype) -> np.ndarray:
    return bfloat16.encode(array) if dtype == np.uint16 else array.astype(dtype)


Kind = Callable[[Settings, Mapping[str, int], int], Tried]
CALLS: dict[str, tuple[Kind, ...]] = {
    "kda.chunk_forward": (
        packed, rows_without_states, views, clamped, long_memory, strongest_gates, equal_keys, one_hot, tiny_rows,
        other_scalars, other_order,
    ),
    "kda.decode": (
        skipped_row, speculative, dropped_slots, no_slots, outside_slots, rows_of_views, one_hot_token, tiny_tokens,
    ),
}  # fmt: skip


# For rules that take none of those: calls with long sequences or many states cost more seconds.
LONG_CALLS: dict[str, tuple[Kind, ...]] = {"kda.chunk_forward": (long_sequence, long_row, long_views)}
MANY_CALLS: dict[str, tuple[Kind, ...]] = {
    "kda.chunk_forward": (many_sequences, uneven_sequences, many_heads, many_rows, many_one_hot)
}
IN_TURN = (CALLS, LONG_CALLS, MANY_CALLS)


def rehearsals(
    operator: str,
    settings: Settings,
    sizes: Mapping[str, int] = {},
    seed: int = 0,
    kinds: Mapping[str, tuple[Kind, ...]] = CALLS,
) -> tuple[Tried, ...]:
    """One call of every kind for an operator, drawn from the seed."""
    return tuple(make(settings, {**SIZES, **sizes}, seed) for make in kinds.get(operator, ()))
