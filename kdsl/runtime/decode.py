"""kda.decode: from the public arguments to a checked call and its outputs."""

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
from kdsl.runtime.chunk import fresh, state_view
from kdsl.runtime.errors import ArgumentValueError
from kdsl.runtime.request import Call
from kdsl.runtime.tensor import TensorView

OPERATOR = "kda.decode"
LONGEST = 8


def decode_call(
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
    ssm_state_indices: Any,
    num_accepted_tokens: Any,
    inplace_final_state: bool,
    slot_zero_is_real: bool,
    check_values: bool,
) -> tuple[Call, Any, Any]:
    """Check the arguments and make the outputs: (call, o [N, T, HV, V], pool after the call).

    The kernel sees the pool as [SLOTS, HV, K, V] with strides and updates it in place; ssm_state_indices as
    int64 [N, W] with W = 1 or T; num_accepted_tokens as int64 [N]. Raises ArgumentTypeError,
    ArgumentValueError.
    """
    inputs = {"q": q, "k": k, "v": v, "g": g, "beta": beta}
    optional = {"A_log": A_log, "dt_bias": dt_bias, "initial_state": initial_state}
    tables = {"ssm_state_indices": ssm_state_indices, "num_accepted_tokens": num_accepted_tokens}
    target = read_target(torch, inputs | optional | tables)
    sizes = read_sizes(torch, "N", q, k, v, g, beta)
    _check_rows(cu_seqlens, sizes)
    views = {name: TensorView.from_torch(tensor) for name, tensor in inputs.items()}
    views.update(gate_views(torch, flags.gate, A_log, dt_bias, sizes))
    pool = _pool(
        torch, flags, initial_state, sizes, ssm_state_indices is not None, inplace_final_state, q.device
    )
    indices = _indices(torch, ssm_state_indices, sizes, slot_zero_is_real, check_values)
    accepted = _accepted(torch, num_accepted_tokens, indices, sizes, check_values)
    views["pool"] = state_view(pool, flags)
    if indices is not None:
        views["ssm_state_indices"] = TensorView.from_torch(indices)
    if accepted is not None:
        views["num_accepted_tokens"] = TensorView.from_torch(accepted)
    o = fresh(torch, (sizes["N"], sizes["T"], sizes["HV"], sizes["V"]), q.dtype, q.device)
    views["o"] = TensorView.from_torch(o)
    options = flags.options()
    # Without indices row n uses slot n, and slot 0 is as real as any.
    options["slot_zero_is_real"] = bool(slot_zero_is_real) or indices is None
    given = {name: name in views for name in ("dt_bias", "ssm_state_indices", "num_accepted_tokens")}
    return Call(OPERATOR, target, views, options, sizes, flags.scalars(sizes["K"]), given), o, pool


def _check_rows(cu_seqlens: Any, sizes: dict[str, int]) -> None:
    if cu_seqlens is not None:
        raise ArgumentValueError(
            "cu_seqlens",
            "a tensor",
            "None, because decoding takes N rows of equal length",
            "reshape packed inputs [1, N * T, ...] to [N, T, ...], or use chunk_kda for unequal lengths",
        )
    if not 1 <= sizes["T"] <= LONGEST:
        raise ArgumentValueError(
            "q",
            f"T = {sizes['T']} tokens for each row",
            f"T from 1 to {LONGEST}",
            "use chunk_kda for other lengths",
        )


def _pool(
    torch: ModuleType,
    flags: Flags,
    initial_state: Any,
    sizes: dict[str, int],
    indexed: bool,
    in_place: bool,
    device: Any,
) -> Any:
    heads, key, value = sizes["HV"], sizes["K"], sizes["V"]
    tail = (heads, value, key) if flags.state_v_first else (heads, key, value)
    letters = "HV, V, K" if flags.state_v_first else "HV, K, V"
    if initial_state is None:
        if indexed or in_place:
            raise ArgumentValueError(
                "initial_state",
                f"None with {'ssm_state_indices' if indexed else 'inplace_final_state=True'}",
                f"the pool [SLOTS, {letters}]",
                "give the pool, or leave ssm_state_indices and inplace_final_state out",
            )
        sizes["SLOTS"] = sizes["N"]
        return torch.zeros((sizes["N"], *tail), dtype=torch.float32, device=device)
    slots = initial_state.shape[0] if indexed and initial_state.dim() else sizes["N"]
    first = "SLOTS" if indexed else "N"
    check_shape(
        "initial_state",
        initial_state,
        f"{first}, {letters}",
        (slots, *tail),
        "HV and V come from v, K from q",
    )
    check_dtype("initial_state", initial_state, (torch.float32, torch.bfloat16), "convert it with .float()")
    sizes["SLOTS"] = slots
    if not in_place:
        return initial_state.detach().clone()
    if _overlaps(initial_state):
        raise ArgumentValueError(
            "initial_state",
            f"strides {list(initial_state.stride())}, with which elements share memory",
            "a pool whose elements are distinct, because it is updated in place",
            "pass initial_state.contiguous(), or inplace_final_state=False",
        )
    return initial_state


def _overlaps(tensor: Any) -> bool:
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride < reach:
                return True
            reach = stride * (size - 1) + reach
    return False


def _indices(
    torch: ModuleType, given: Any, sizes: dict[str, int], slot_zero_is_real: bool, check_values: bool
) -> Any:
    """ssm_state_indices as int64 [N, W], or None.

    An index beyond the pool is that of a skipped row, by the operator's definition. On the host it becomes -1
    all the same; a GPU would spend a launch on it that costs as much as the decoding of a small batch.
    """
    if given is None:
        sizes["W"] = 1
        return None
    check_dtype("ssm_state_indices", given, (torch.int32, torch.int64), "convert it with .to(torch.int64)")
    rows, length, slots = sizes["N"], sizes["T"], sizes["SLOTS"]
    if given.shape not in ((rows,), (rows, 1), (rows, length)):
        raise ArgumentValueError(
            "ssm_state_indices",
            f"shape {list(given.shape)}",
            f"[N] = [{rows}] or [N, T] = [{rows}, {length}]",
            "give one slot for each row, or one for each token",
        )
    if check_values:
        _check_slots(given.tolist(), slots, slot_zero_is_real)
    indices = given.to(torch.int64)
    if indices.device.type == "cpu":
        indices = torch.where(indices < slots, indices, -1)
    if indices.dim() == 1:
        indices = indices[:, None]
    sizes["W"] = indices.shape[1]
    return indices.contiguous()


def _check_slots(table: list[Any], slots: int, slot_zero_is_real: bool) -> None:
    rows = [row if isinstance(row, list) else [row] for row in table]
    owner: dict[int, int] = {}
    for row, entries in enumerate(rows):
        for slot in entries:
            if slot >= slots:
                raise ArgumentValueError(
                    "ssm_state_indices",
                    f"slot {slot} in row {row}",
                    f"slots below {slots}, the size of the pool",
                    "enlarge the pool, or use -1 for a row to skip",
                )
            real = slot > 0 or (slot == 0 and slot_zero_is_real)
            if real and owner.setdefault(slot, row) != row:
                raise ArgumentValueError(
                    "ssm_state_indices",
                    f"slot {slot} in rows {owner[slot]} and {row}",
                    "a slot in one row only, because rows update their slots at the same time",
                    "give each row its own slot",
                )


def _accepted(torch: ModuleType, given: Any, indices: Any, sizes: dict[str, int], check_values: bool) -> Any:
    """num_accepted_tokens as contiguous int64 [N], or None; on the host each is brought into 1 to W, as the
    operator's definition does.
    """
    if given is None:
        return None
    check_dtype("num_accepted_tokens", given, (torch.int32, torch.int64), "convert it with .to(torch.int64)")
    check_shape("num_accepted_tokens", given, "N", (sizes["N"],), "give one count for each row")
    if indices is None or sizes["W"] != sizes["T"]:
        raise ArgumentValueError(
            "num_accepted_tokens",
            "num_accepted_tokens without one slot for each token",
            f"ssm_state_indices [N, T] = [{sizes['N']}, {sizes['T']}], among which the count chooses",
            "give it, or leave num_accepted_tokens out",
        )
    if check_values:
        for row, count in enumerate(given.tolist()):
            if not 1 <= count <= sizes["W"]:
                raise ArgumentValueError(
                    "num_accepted_tokens",
                    f"{count} in row {row}",
                    f"1 to T = {sizes['W']}",
                    "correct the count",
                )
    accepted = given.to(torch.int64).contiguous()
    return accepted.clamp(1, sizes["W"]) if accepted.device.type == "cpu" else accepted
