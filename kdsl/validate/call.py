"""Calls as data: the arguments of `chunk_kda` in a dict, and the oracle's answer to one.

A call maps the names of `kdsl.kda.chunk_kda` to NumPy arrays (uint16 are bfloat16 patterns) and options.
What is absent has the default of `chunk_kda`. A runner, `run(call) -> (o, final_state)`, is anything that
executes one: a kernel on a GPU, the emulation of one, the oracle itself. What a runner promises:

- o and final_state come back as arrays (floats, or uint16 patterns), filled with NaN before the launch
  (`nan_outputs`), so that an element that was never written shows;
- it hands its kernel the arrays of the call as they are, and keeps one device buffer for each array object,
  so that an array refilled in place between two calls is refilled in place on the device as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kdsl.validate import oracle
from kdsl.validate.errors import MissingArrayError, OptionError

Call = Mapping[str, Any]
Run = Callable[[Call], tuple[np.ndarray, np.ndarray]]

NEEDED = ("q", "k", "v", "g", "beta")
ARRAYS = (*NEEDED, "initial_state", "A_log", "dt_bias", "cu_seqlens")
OPTIONS = ("scale", "output_final_state", "use_qk_l2norm_in_kernel", "use_gate_in_kernel",
           "use_beta_sigmoid_in_kernel", "allow_neg_eigval", "safe_gate", "lower_bound", "state_v_first",
           "transpose_state_layout")  # fmt: skip
SAFE_GATE_FLOOR = -5.0


def gate_of(call: Call) -> str:
    """Which log decay the call asks for: "precomputed", "softplus" or "bounded" (see `activation`)."""
    if not call.get("use_gate_in_kernel", False):
        return "precomputed"
    return "softplus" if call.get("lower_bound") is None else "bounded"


def state_v_first(call: Call) -> bool:
    """Whether states are [N, HV, V, K]; `transpose_state_layout` is the older name of the option."""
    old = call.get("transpose_state_layout")
    if old is not None and call.get("state_v_first"):
        raise OptionError("transpose_state_layout", "it is the older name of state_v_first; give one of them")
    return bool(call.get("state_v_first", False) if old is None else old)


def oracle_arguments(call: Call) -> dict[str, Any]:
    """The arguments of `oracle.chunk_forward` that mean the same as `call`.

    Gate parameters go along only where the gate is computed in the kernel, as in `chunk_kda`. Raises
    OptionError for names that `chunk_kda` does not have and for a `safe_gate` without a bound in [-5, 0).
    """
    for name in call:
        if name not in ARRAYS and name not in OPTIONS:
            raise OptionError(name, "not an argument of chunk_kda")
    for name in NEEDED:
        if call.get(name) is None:
            raise MissingArrayError(name, "a call")
    gate, bound = gate_of(call), call.get("lower_bound")
    if call.get("safe_gate") and not (bound is not None and SAFE_GATE_FLOOR <= bound < 0):
        raise OptionError("safe_gate", f"lower_bound is {bound}, needed in [{SAFE_GATE_FLOOR:g}, 0)")
    arguments = {name: call[name] for name in NEEDED}
    arguments |= {name: call.get(name) for name in ("scale", "initial_state", "cu_seqlens")}
    if gate != "precomputed":
        arguments |= {name: call.get(name) for name in ("A_log", "dt_bias", "lower_bound")}
    return arguments | {
        "gate": gate,
        "use_qk_l2norm": bool(call.get("use_qk_l2norm_in_kernel", False)),
        "beta_sigmoid": bool(call.get("use_beta_sigmoid_in_kernel", False)),
        "allow_neg_eigval": bool(call.get("allow_neg_eigval", False)),
        "state_v_first": state_v_first(call),
    }


def reference(call: Call) -> tuple[np.ndarray, np.ndarray]:
    """The oracle's (o, final_state) for `call`, float64, in the state layout that the call asks for."""
    return oracle.chunk_forward(**oracle_arguments(call))


def decode_reference(call: Call) -> tuple[np.ndarray, np.ndarray]:
    """The oracle's (o, pool after the call), float64, for a call of the decode form with `pool` among its arrays."""
    arrays = ("q", "k", "v", "g", "beta", "pool", "ssm_state_indices", "num_accepted_tokens")
    gate = gate_of(call)
    parameters = ("A_log", "dt_bias", "lower_bound") if gate != "precomputed" else ()
    return oracle.decode(
        **{name: call.get(name) for name in (*arrays, *parameters)},
        gate=gate,
        scale=call.get("scale"),
        slot_zero_is_real=call.get("slot_zero_is_real", True),
        use_qk_l2norm=bool(call.get("use_qk_l2norm_in_kernel")),
        beta_sigmoid=bool(call.get("use_beta_sigmoid_in_kernel")),
        allow_neg_eigval=bool(call.get("allow_neg_eigval")),
        state_v_first=state_v_first(call),
    )


def output_shapes(call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of o and of final_state that `call` must give."""
    q, v = np.shape(call["q"]), np.shape(call["v"])
    cu = call.get("cu_seqlens")
    sequences = q[0] if cu is None else len(cu) - 1
    inner = (v[3], q[3]) if state_v_first(call) else (q[3], v[3])
    return v, (sequences, v[2], *inner)


def nan_outputs(call: Call) -> tuple[np.ndarray, np.ndarray]:
    """Float32 buffers for o and final_state with NaN in every element, for runners to write into."""
    o, state = output_shapes(call)
    return np.full(o, np.nan, np.float32), np.full(state, np.nan, np.float32)


def copy_of(call: Call, **changes: Any) -> dict[str, Any]:
    """A call with fresh copies of all arrays, and with `changes` in place of what it had (None removes)."""
    merged = {**call, **changes}
    return {
        name: value.copy() if isinstance(value, np.ndarray) else value
        for name, value in merged.items()
        if value is not None
    }


def digest(call: Call) -> dict[str, str]:
    """SHA-256 of every array of the call: dtype, shape and bytes."""
    found = {}
    for name, value in call.items():
        if isinstance(value, np.ndarray):
            head = f"{value.dtype.str}{value.shape}".encode()
            found[name] = hashlib.sha256(head + np.ascontiguousarray(value).tobytes()).hexdigest()
    return found
