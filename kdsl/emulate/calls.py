"""Random calls of the operators for given sizes and settings: what a rule is tried on when nobody says
otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kdsl.validate import bfloat16

# Tails, an empty sequence, one of a single token: 140 tokens with two heads take about a second.
LENGTHS = (70, 0, 1, 69)
SIZES = {"H": 2, "K": 128, "V": 128}
GATES = ("precomputed", "softplus", "bounded")
LOWER_BOUND = -5.0
DTYPES = {"bf16": "bf16", "f16": "f16", "f32": "f32"}


def chunk_call(
    rng: np.random.Generator,
    sizes: Mapping[str, int],
    lengths: Sequence[int] | None,
    settings: Mapping[str, object],
) -> dict[str, Any]:
    """A call of kda.chunk_forward with initial states: arguments as in `kdsl.validate.call`.

    `lengths` packs sequences, B = 1. Without it B rows of T tokens. Settings are the operator's options and
    the dtypes of q, g, beta and initial_state. Raises ValueError for settings that it does not know how to
    draw.
    """
    heads, values_heads = sizes["H"], sizes.get("HV", sizes["H"])
    batch, tokens = (1, sum(lengths)) if lengths is not None else (sizes.get("B", 1), sizes["T"])
    sequences = len(lengths) if lengths is not None else batch
    arrays = _token_arrays(rng, (batch, tokens), heads, values_heads, sizes, settings)
    state = rng.normal(0, 0.25, (sequences, values_heads, *_state_axes(sizes, settings)))
    call: dict[str, Any] = {**arrays, "initial_state": _stored(state, settings.get("initial_state", "f32"))}
    if lengths is not None:
        call["cu_seqlens"] = np.cumsum((0, *lengths)).astype(np.int64)
    if _gate(settings) != "precomputed":
        call |= {"use_gate_in_kernel": True, **_gate_parameters(rng, values_heads, sizes)}
    if _gate(settings) == "bounded":
        call["lower_bound"] = float(settings.get("lower_bound", LOWER_BOUND))
    switches = ("use_qk_l2norm_in_kernel", "use_beta_sigmoid_in_kernel", "allow_neg_eigval", "state_v_first")
    return call | {name: True for name in switches if _on(settings, name)}


def decode_call(
    rng: np.random.Generator, sizes: Mapping[str, int], settings: Mapping[str, object]
) -> dict[str, Any]:
    """A call of kda.decode: arguments of `kdsl.validate.oracle.decode`, N rows of T tokens, the second row
    skipped.

    The pool has two slots more than rows, and rows own their slots in a random order.
    """
    heads, values_heads = sizes["H"], sizes.get("HV", sizes["H"])
    rows, tokens = sizes.get("N", 3), sizes.get("T", 1)
    arrays = _token_arrays(rng, (rows, tokens), heads, values_heads, sizes, settings)
    slots = rows + 2
    pool = rng.normal(0, 0.25, (slots, values_heads, *_state_axes(sizes, settings)))
    owned = rng.permutation(np.arange(1, slots))[:rows].astype(np.int64)
    owned[1:2] = -1
    gate = _gate(settings)
    call = {
        **arrays,
        "pool": _stored(pool, settings.get("pool", "f32")),
        "ssm_state_indices": owned,
        "gate": gate,
    }
    if gate != "precomputed":
        call |= _gate_parameters(rng, values_heads, sizes)
    if gate == "bounded":
        call["lower_bound"] = float(settings.get("lower_bound", LOWER_BOUND))
    names = {"use_qk_l2norm": "use_qk_l2norm_in_kernel", "beta_sigmoid": "use_beta_sigmoid_in_kernel",
             "allow_neg_eigval": "allow_neg_eigval", "state_v_first": "state_v_first"}  # fmt: skip
    return call | {name: _on(settings, option) for name, option in names.items()}


def _token_arrays(rng, shape, heads, values_heads, sizes, settings) -> dict[str, np.ndarray]:
    """q, k, v, g and beta of the same size as trained models have them, in the dtypes of the settings."""
    keys, values, draw = sizes["K"], sizes["V"], rng.standard_normal
    unit = 1.0 if _on(settings, "use_qk_l2norm_in_kernel") else keys**-0.5
    own = draw((*shape, values_heads, keys))
    logits = draw((*shape, values_heads))
    dtype = settings.get("q", "bf16")
    drawn = {
        "q": draw((*shape, heads, keys)) * unit,
        "k": draw((*shape, heads, keys)) * unit,
        "v": draw((*shape, values_heads, values)),
        "g": own - 2.0 if _gate(settings) != "precomputed" else -np.exp(own - 2.0),
        "beta": logits if _on(settings, "use_beta_sigmoid_in_kernel") else 1.0 / (1.0 + np.exp(-logits)),
    }
    return {name: _stored(array, settings.get(name, dtype)) for name, array in drawn.items()}


def _gate(settings: Mapping[str, object]) -> str:
    gate = settings.get("gate", "bounded")
    if gate not in GATES:
        raise ValueError(f"gate is {gate!r}, none of {', '.join(GATES)}")
    return str(gate)


def _gate_parameters(rng, heads: int, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    return {
        "A_log": rng.uniform(-0.3, 0.3, heads).astype(np.float32),
        "dt_bias": rng.normal(0, 0.3, (heads, sizes["K"])).astype(np.float32),
    }


def _state_axes(sizes: Mapping[str, int], settings: Mapping[str, object]) -> tuple[int, int]:
    axes = sizes["K"], sizes["V"]
    return axes[::-1] if _on(settings, "state_v_first") else axes


def _on(settings: Mapping[str, object], name: str) -> bool:
    """Norm and sigmoid are in the kernel unless a setting says otherwise."""
    value = settings.get(name, name in ("use_qk_l2norm_in_kernel", "use_beta_sigmoid_in_kernel"))
    if isinstance(value, str):
        if value.lower() not in ("true", "false"):
            raise ValueError(f"{name} is {value!r}, neither true nor false")
        return value.lower() == "true"
    return bool(value)


def _stored(array: np.ndarray, dtype: object) -> np.ndarray:
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is none of {', '.join(DTYPES)}")
    if dtype == "bf16":
        return bfloat16.encode(array)
    return array.astype(np.float16 if dtype == "f16" else np.float32)
