"""Recorded operator inputs (`data/traces/*.npz`) as calls.

The arrays of a file are described in `data/README.md`. Reading checks everything that a call relies on:
the archive's own checksums, every array's name, dtype and shape, finite parameters, the boundaries.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kdsl.validate import bfloat16, oracle
from kdsl.validate.errors import ArrayError, TraceError

TRACE_NAMES = ("bounded_layer0", "bounded_layer3", "softplus_layer0", "softplus_layer3")
_DTYPES = {
    "q": np.uint16, "k": np.uint16, "v": np.uint16, "g": np.uint16, "beta": np.uint16,
    "A_log": np.float32, "dt_bias": np.float32, "cu_seqlens": np.int64,
    "initial_state_kv": np.float32, "lower_bound": np.float32,
}  # fmt: skip


def load_trace(path: str | Path) -> dict[str, Any]:
    """The call recorded in the `.npz` file at `path`.

    q, k [1, T, H, K], v [1, T, HV, V], g [1, T, HV, K] and beta [1, T, HV] are bfloat16 patterns (uint16)
    before normalisation, gate and sigmoid; cu_seqlens [N + 1]; initial_state [N, HV, K, V] float32;
    A_log [HV] and dt_bias [HV, K] float32; lower_bound is None for a softplus trace.
    Raises TraceError, with the path and the problem, for a file that is missing, damaged or not a trace.
    """
    arrays = _arrays(Path(path))
    bound = float(arrays.pop("lower_bound"))
    call: dict[str, Any] = {("initial_state" if name == "initial_state_kv" else name): array
                            for name, array in arrays.items()}  # fmt: skip
    bounded = not np.isnan(bound)
    return call | {
        "use_qk_l2norm_in_kernel": True,
        "use_gate_in_kernel": True,
        "use_beta_sigmoid_in_kernel": True,
        "safe_gate": bounded,
        "lower_bound": bound if bounded else None,
        "output_final_state": True,
    }


def first_sequences(call: dict[str, Any], count: int) -> dict[str, Any]:
    """The call with only the first `count` packed sequences (copies), for a quicker run."""
    cu = call["cu_seqlens"][: count + 1].copy()
    tokens = int(cu[-1])
    cut = {name: call[name][:, :tokens].copy() for name in ("q", "k", "v", "g", "beta")}
    return call | cut | {"cu_seqlens": cu, "initial_state": call["initial_state"][:count].copy()}


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise TraceError(str(path), "not an .npz archive")
            missing = [name for name in _DTYPES if name not in archive.files]
            if missing:
                raise TraceError(str(path), f"no array named {', '.join(missing)}")
            arrays = {name: archive[name] for name in _DTYPES}
    except TraceError:
        raise
    except FileNotFoundError:
        raise TraceError(str(path), "no such file") from None
    except Exception as error:
        # Damage can surface as any error of the archive, compression or header readers.
        raise TraceError(str(path), f"damaged or not an .npz archive ({error})") from error
    for name, array in arrays.items():
        problem = _problem(name, array, arrays)
        if problem:
            raise TraceError(str(path), problem)
    try:
        oracle.sequence_spans(1, arrays["q"].shape[1], arrays["cu_seqlens"])
    except ArrayError as error:
        raise TraceError(str(path), str(error)) from None
    return arrays


def _problem(name: str, array: np.ndarray, arrays: dict[str, np.ndarray]) -> str | None:
    if array.dtype != _DTYPES[name]:
        return f"{name} has dtype {array.dtype}, expected {np.dtype(_DTYPES[name])}"
    if arrays["q"].ndim != 4 or arrays["v"].ndim != 4 or arrays["cu_seqlens"].ndim != 1:
        return "q and v need four axes and cu_seqlens one"
    _, tokens, heads, channels = arrays["q"].shape
    value_heads, width = arrays["v"].shape[2:]
    sequences = arrays["cu_seqlens"].size - 1
    shapes = {
        "q": (1, tokens, heads, channels), "k": (1, tokens, heads, channels),
        "v": (1, tokens, value_heads, width), "g": (1, tokens, value_heads, channels),
        "beta": (1, tokens, value_heads), "A_log": (value_heads,), "dt_bias": (value_heads, channels),
        "cu_seqlens": (sequences + 1,), "initial_state_kv": (sequences, value_heads, channels, width),
        "lower_bound": (),
    }  # fmt: skip
    if array.shape != shapes[name]:
        return f"{name} has shape {array.shape}, expected {shapes[name]}"
    if name not in ("cu_seqlens", "lower_bound") and not np.isfinite(bfloat16.values_of(name, array)).all():
        return f"{name} has values that are not finite"
    return None
