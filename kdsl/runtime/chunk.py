"""kda.chunk_forward: from the public arguments to a checked call and its outputs."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from kdsl.runtime.arguments import (
    Flags,
    check_dtype,
    check_shape,
    gate_views,
    read_sizes,
    read_target,
)
from kdsl.runtime.errors import ArgumentValueError
from kdsl.runtime.request import Call
from kdsl.runtime.tensor import TensorView
from kdsl.runtime.workspace import poisoned

OPERATOR = "kda.chunk_forward"


def chunk_call(
    torch: ModuleType,
    flags: Flags,
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    *,
    A_log: Any,
    dt_bias: Any,
    initial_state: Any,
    cu_seqlens: Any,
    output_final_state: bool,
    check_values: bool,
) -> tuple[Call, Any, Any]:
    """Check the arguments and make the outputs: (call, o [B, T, HV, V], final_state [N, HV, K, V] or None).

    The kernel sees states as [N, HV, K, V] with strides, cu_seqlens as int64 [N + 1] and dt_bias as [HV, K].
    Raises ArgumentTypeError, ArgumentValueError.
    """
    inputs = {"q": q, "k": k, "v": v, "g": g, "beta": beta}
    optional = {"A_log": A_log, "dt_bias": dt_bias, "initial_state": initial_state, "cu_seqlens": cu_seqlens}
    target = read_target(torch, inputs | optional)
    sizes = read_sizes(torch, "B", q, k, v, g, beta)
    views = {name: TensorView.from_torch(tensor) for name, tensor in inputs.items()}
    views.update(gate_views(torch, flags.gate, A_log, dt_bias, sizes))
    cu_seqlens = _cu_seqlens(torch, cu_seqlens, sizes, check_values)
    sizes["N"] = sizes["B"] if cu_seqlens is None else len(cu_seqlens) - 1
    heads, key, value = sizes["HV"], sizes["K"], sizes["V"]
    letters = "N, HV, V, K" if flags.state_v_first else "N, HV, K, V"
    state_shape = (sizes["N"], heads, value, key) if flags.state_v_first else (sizes["N"], heads, key, value)
    state_dtype = torch.float32
    if initial_state is not None:
        check_shape(
            "initial_state",
            initial_state,
            letters,
            state_shape,
            "N comes from B or cu_seqlens, HV and V from v",
        )
        check_dtype(
            "initial_state", initial_state, (torch.float32, torch.bfloat16), "convert it with .float()"
        )
        state_dtype = initial_state.dtype
        views["initial_state"] = state_view(initial_state, flags)
    if cu_seqlens is not None:
        views["cu_seqlens"] = TensorView.from_torch(cu_seqlens)
    o = fresh(torch, (sizes["B"], sizes["T"], heads, value), q.dtype, q.device)
    views["o"] = TensorView.from_torch(o)
    final_state = None
    if output_final_state:
        final_state = fresh(torch, state_shape, state_dtype, q.device)
        views["final_state"] = state_view(final_state, flags)
    given = {name: name in views for name in ("dt_bias", "initial_state", "cu_seqlens", "final_state")}
    return Call(OPERATOR, target, views, flags.options(), sizes, flags.scalars(key), given), o, final_state


def fresh(torch: ModuleType, shape: tuple[int, ...], dtype: Any, device: Any) -> Any:
    """A new tensor whose elements the kernel will all write; NaN until then if KDSL_POISON=1."""
    tensor = torch.empty(shape, dtype=dtype, device=device)
    return tensor.fill_(float("nan")) if poisoned() else tensor


def state_view(state: Any, flags: Flags) -> TensorView:
    """A state as the kernel sees it, [.., K, V], whichever layout the caller's has."""
    view = TensorView.from_torch(state)
    return view.with_last_axes_swapped() if flags.state_v_first else view


def _cu_seqlens(torch: ModuleType, given: Any, sizes: dict[str, int], check_values: bool) -> Any:
    """cu_seqlens as contiguous int64 that starts with 0, does not decrease and ends with T, or None.

    Good values come out as they are. Bad ones are an error with `check_values`; without it they are brought
    into range where they are, without waiting for the device, so that no kernel leaves its tensors and every
    element of o is written.
    """
    if given is None:
        return None
    check_dtype("cu_seqlens", given, (torch.int32, torch.int64), "convert it with .to(torch.int64)")
    length = sizes["T"]
    if given.dim() != 1 or given.shape[0] < 1:
        raise ArgumentValueError(
            "cu_seqlens",
            f"shape {list(given.shape)}",
            "[N + 1] with N of 0 or more",
            "start with 0, end with T",
        )
    if sizes["B"] != 1:
        raise ArgumentValueError(
            "cu_seqlens",
            f"cu_seqlens with B = {sizes['B']}",
            "B = 1, the sequences packed along T",
            "reshape q, k, v, g and beta to [1, B * T, ...]",
        )
    if given.shape[0] == 1 and length:
        raise ArgumentValueError(
            "cu_seqlens",
            f"no sequence for T = {length} tokens",
            "one sequence or more",
            "end cu_seqlens with T",
        )
    if check_values:
        _check_boundaries(given.tolist(), length)
    safe = given.to(torch.int64).clamp(0, length)
    safe = safe.cummax(0).values
    safe[:1].fill_(0)
    safe[-1:].fill_(length)
    return safe


def _check_boundaries(boundaries: list[int], length: int) -> None:
    remedy = "correct the boundaries: the running sum of the lengths, with 0 before it"
    if boundaries[0] != 0:
        raise ArgumentValueError("cu_seqlens", f"cu_seqlens[0] = {boundaries[0]}", "0", remedy)
    for index, (begin, end) in enumerate(zip(boundaries, boundaries[1:], strict=False)):
        if end < begin:
            found = f"cu_seqlens[{index + 1}] = {end} after {begin}"
            raise ArgumentValueError("cu_seqlens", found, "values that do not decrease", remedy)
    if boundaries[-1] != length:
        found = f"cu_seqlens[{len(boundaries) - 1}] = {boundaries[-1]}"
        raise ArgumentValueError("cu_seqlens", found, f"T = {length} at the end", remedy)
