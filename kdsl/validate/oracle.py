"""Float64 token-by-token KDA recurrence: the reference that every kernel is judged against.

Per sequence and value head, with S in [K, V] (Kimi Linear technical report, arXiv:2510.26692, the delta
rule with a decay per channel; names as in flash-linear-attention's `naive_recurrent_kda`):

    S <- diag(exp(g_t)) S;   d = beta_t (v_t - S^T k_t);   S <- S + k_t d^T;   o_t = S^T q_t

No chunking, no inverse, no cumulative sum: none of the forms that a kernel may get wrong occur here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kdsl.validate.activation import l2_normalise, log_decay, write_strength
from kdsl.validate.bfloat16 import values_of
from kdsl.validate.errors import ArrayError, MissingArrayError, OptionError

MAX_DECODE_TOKENS = 8


@dataclass(frozen=True)
class Operands:
    """What one step reads, in float64, heads already spread to HV.

    q, k, decay [B, T, HV, K]; v [B, T, HV, V]; beta [B, T, HV]. q carries the scale; decay is exp(log decay).
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    decay: np.ndarray
    beta: np.ndarray


def chunk_forward(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    g: np.ndarray,
    beta: np.ndarray,
    *,
    scale: float | None = None,
    initial_state: np.ndarray | None = None,
    A_log: np.ndarray | None = None,
    dt_bias: np.ndarray | None = None,
    gate: str = "precomputed",
    lower_bound: float | None = None,
    use_qk_l2norm: bool = False,
    beta_sigmoid: bool = False,
    allow_neg_eigval: bool = False,
    cu_seqlens: np.ndarray | None = None,
    state_v_first: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """The forward operator: (o [B, T, HV, V], final_state [N, HV, K, V]), both float64.

    q, k [B, T, H, K]; v [B, T, HV, V]; g [B, T, HV, K]; beta [B, T, HV]; HV a multiple of H, any T >= 0.
    Arrays are floats, or uint16 read as bfloat16 patterns. `cu_seqlens` (integers [N + 1], B == 1) packs
    N sequences, of which some may be empty; without it N == B. States are [N, HV, K, V], or [N, HV, V, K]
    with `state_v_first`. `scale` defaults to K^-0.5. Gate and beta options: see `activation`.
    An empty sequence's final state is its initial state, or zeros. Inputs are never written.
    Raises ArrayError, MissingArrayError or OptionError, each naming the argument.
    """
    operands = _operands(
        q, k, v, g, beta, scale=scale, use_qk_l2norm=use_qk_l2norm,
        gate={"gate": gate, "A_log": A_log, "dt_bias": dt_bias, "lower_bound": lower_bound},
        strength={"beta_sigmoid": beta_sigmoid, "allow_neg_eigval": allow_neg_eigval},
    )  # fmt: skip
    batch, tokens, heads, channels = operands.q.shape
    spans = sequence_spans(batch, tokens, cu_seqlens)
    shape = (len(spans), heads, channels, operands.v.shape[-1])
    states = _states("initial_state", initial_state, shape, state_v_first)
    o = np.zeros(operands.v.shape)
    for state, (row, start, stop) in zip(states, spans, strict=True):
        for t in range(start, stop):
            o[row, t] = _step(state, operands, row, t)
    return o, states.swapaxes(-1, -2).copy() if state_v_first else states


def decode(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    g: np.ndarray,
    beta: np.ndarray,
    pool: np.ndarray,
    *,
    ssm_state_indices: np.ndarray | None = None,
    num_accepted_tokens: np.ndarray | None = None,
    slot_zero_is_real: bool = True,
    scale: float | None = None,
    A_log: np.ndarray | None = None,
    dt_bias: np.ndarray | None = None,
    gate: str = "precomputed",
    lower_bound: float | None = None,
    use_qk_l2norm: bool = False,
    beta_sigmoid: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """The decode operator: (o [N, T, HV, V], the pool after the call), both float64; inputs stay as they are.

    q, k [N, T, H, K]; v [N, T, HV, V]; g [N, T, HV, K]; beta [N, T, HV]; T from 1 to 8. `pool` is
    [SLOTS, HV, K, V], or [SLOTS, HV, V, K] with `state_v_first`.

    - No indices: row n reads and finally writes slot n; every slot is real.
    - Indices [N]: row n reads slot indices[n] and writes it once, after its last token.
    - Indices [N, T]: row n reads slot indices[n, accepted[n] - 1] (accepted is 1 where
      `num_accepted_tokens` is not given) and after token t writes slot indices[n, t]: the speculative form.

    A row whose source slot is null is skipped: zero output, no slot touched. In the [N, T] form of a live
    row a null slot at token t only drops that write. Null means negative, and also 0 unless
    `slot_zero_is_real`. Raises ArrayError for indices outside the pool, accepted counts outside 1..T, and
    a slot that one row writes while another reads or writes it, because the result would hang on the order.
    """
    operands = _operands(
        q, k, v, g, beta, scale=scale, use_qk_l2norm=use_qk_l2norm,
        gate={"gate": gate, "A_log": A_log, "dt_bias": dt_bias, "lower_bound": lower_bound},
        strength={"beta_sigmoid": beta_sigmoid, "allow_neg_eigval": allow_neg_eigval},
    )  # fmt: skip
    rows, tokens, heads, channels = operands.q.shape
    shape = (_slot_count(pool, tokens), heads, channels, operands.v.shape[-1])
    states = _states("pool", pool, shape, state_v_first)
    sources, targets = _slots(
        ssm_state_indices, num_accepted_tokens, slot_zero_is_real, rows, tokens, slots=shape[0]
    )
    before = states.copy()
    o = np.zeros(operands.v.shape)
    for row in np.flatnonzero(sources >= 0):
        state = before[sources[row]].copy()
        for t in range(tokens):
            o[row, t] = _step(state, operands, row, t)
            if targets[row, t] >= 0:
                states[targets[row, t]] = state
    return o, states.swapaxes(-1, -2).copy() if state_v_first else states


def _slot_count(pool: np.ndarray | None, tokens: int) -> int:
    if not 1 <= tokens <= MAX_DECODE_TOKENS:
        raise ArrayError("q", f"{tokens} tokens per row", f"1 to {MAX_DECODE_TOKENS}")
    if pool is None:
        raise MissingArrayError("pool", "the decode operator")
    return np.shape(pool)[0] if np.ndim(pool) else 0


def sequence_spans(batch: int, tokens: int, cu_seqlens: np.ndarray | None) -> list[tuple[int, int, int]]:
    """(batch row, first token, one past the last token) of each sequence, in order.

    Raises ArrayError unless `cu_seqlens` is integral [N + 1] with cu[0] == 0, non-decreasing,
    cu[N] == tokens, and batch == 1.
    """
    if cu_seqlens is None:
        return [(row, 0, tokens) for row in range(batch)]
    cu = np.asarray(cu_seqlens)
    if cu.dtype not in (np.int32, np.int64) or cu.ndim != 1 or cu.size == 0:
        raise ArrayError("cu_seqlens", f"{cu.dtype} of shape {cu.shape}", "int32 or int64 of shape [N + 1]")
    if batch != 1:
        raise ArrayError("q", f"batch {batch} with cu_seqlens", "batch 1: packed sequences share one row")
    if cu[0] != 0 or cu[-1] != tokens or (np.diff(cu) < 0).any():
        raise ArrayError("cu_seqlens", str(cu.tolist()), f"0 first, never decreasing, {tokens} last")
    return [(0, int(start), int(stop)) for start, stop in zip(cu[:-1], cu[1:], strict=True)]


def _step(state: np.ndarray, x: Operands, row: int, t: int) -> np.ndarray:
    """One token for all value heads of a sequence: updates `state` [HV, K, V] in place, gives o_t [HV, V]."""
    k = x.k[row, t]
    state *= x.decay[row, t][:, :, None]
    predicted = np.matmul(k[:, None, :], state)[:, 0]
    correction = x.beta[row, t][:, None] * (x.v[row, t] - predicted)
    state += k[:, :, None] * correction[:, None, :]
    return np.matmul(x.q[row, t][:, None, :], state)[:, 0]


def _operands(q, k, v, g, beta, *, scale, use_qk_l2norm: bool, gate: dict, strength: dict) -> Operands:
    given = {"q": q, "k": k, "v": v, "g": g, "beta": beta}
    for name, array in given.items():
        if array is None:
            raise MissingArrayError(name, "the recurrence")
    q, k, v, g, beta = (values_of(name, array) for name, array in given.items())
    _check_shapes(q, k, v, g, beta)
    if use_qk_l2norm:
        q, k = l2_normalise(q), l2_normalise(k)
    if scale is not None and not np.isfinite(scale):
        raise OptionError("scale", f"found {scale}, expected a finite number")
    q = q * (q.shape[-1] ** -0.5 if scale is None else float(scale))
    spread = v.shape[2] // q.shape[2]
    return Operands(
        q=np.repeat(q, spread, axis=2),
        k=np.repeat(k, spread, axis=2),
        v=v,
        decay=np.exp(log_decay(g, **gate)),
        beta=write_strength(beta, **strength),
    )


def _check_shapes(q, k, v, g, beta) -> None:
    if q.ndim != 4 or v.ndim != 4:
        name, array = ("q", q) if q.ndim != 4 else ("v", v)
        raise ArrayError(name, f"shape {array.shape}", "four axes: batch, token, head, channel")
    batch, tokens, heads, channels = q.shape
    value_heads = v.shape[2]
    if heads == 0 or value_heads % heads:
        raise ArrayError("v", f"{value_heads} heads", f"a multiple of the {heads} heads of q")
    expected = (
        ("k", k, q.shape),
        ("v", v, (batch, tokens, value_heads, v.shape[3])),
        ("g", g, (batch, tokens, value_heads, channels)),
        ("beta", beta, (batch, tokens, value_heads)),
    )
    for name, array, shape in expected:
        if array.shape != shape:
            raise ArrayError(name, f"shape {array.shape}", f"shape {shape}")


def _states(name: str, given: np.ndarray | None, shape: tuple[int, ...], state_v_first: bool) -> np.ndarray:
    """A fresh float64 copy of the states as [N, HV, K, V], or zeros."""
    if given is None:
        return np.zeros(shape)
    stored = shape[:2] + (shape[3], shape[2]) if state_v_first else shape
    if np.shape(given) != stored:
        raise ArrayError(name, f"shape {np.shape(given)}", f"shape {stored}")
    values = values_of(name, given)
    return values.swapaxes(-1, -2).copy() if state_v_first else values


def _slots(indices, accepted, slot_zero_is_real: bool, rows: int, tokens: int, slots: int):
    """Source slot per row [N] and target slot per token [N, T]; -1 where nothing is read or written."""
    if indices is None:
        if accepted is not None:
            raise OptionError("num_accepted_tokens", "it chooses among ssm_state_indices: give them")
        if slots < rows:
            raise ArrayError("pool", f"{slots} slots", f"at least {rows}, one for each row")
        indices, slot_zero_is_real = np.arange(rows), True
    table = _integers("ssm_state_indices", indices, ((rows,), (rows, tokens)))
    if (table >= slots).any():
        raise ArrayError("ssm_state_indices", f"slot {table.max()}", f"below {slots}, the slots of the pool")
    if table.ndim == 1:
        if accepted is not None and tokens > 1:
            expected = f"shape {(rows, tokens)}, one slot for each token"
            raise ArrayError("ssm_state_indices", f"shape {table.shape}", expected)
        table = np.concatenate([np.full((rows, tokens - 1), -1), table[:, None]], axis=1)
        source = table[:, -1].copy()
    else:
        source = table[:, 0].copy()
    null = (table < 0) | ((table == 0) & (not slot_zero_is_real))
    if accepted is not None:
        counts = _integers("num_accepted_tokens", accepted, ((rows,),))
        unusable = ((counts < 1) | (counts > tokens)) & ~null.all(axis=1)
        if unusable.any():
            expected = f"1 to {tokens} in every row in use"
            raise ArrayError("num_accepted_tokens", str(counts.tolist()), expected)
        source = table[np.arange(rows), np.clip(counts, 1, tokens) - 1]
    source[(source < 0) | ((source == 0) & (not slot_zero_is_real))] = -1
    table = np.where(null | (source < 0)[:, None], -1, table)
    _refuse_shared_slots(source, table)
    return source, table


def _integers(name: str, given: np.ndarray, shapes: tuple) -> np.ndarray:
    array = np.asarray(given)
    if array.dtype not in (np.int32, np.int64) or array.shape not in shapes:
        expected = " or ".join(str(shape) for shape in shapes)
        raise ArrayError(name, f"{array.dtype} of shape {array.shape}", f"int32 or int64 of shape {expected}")
    return array.astype(np.int64)


def _refuse_shared_slots(source: np.ndarray, targets: np.ndarray) -> None:
    readers: dict[int, set[int]] = {}
    for row in range(source.size):
        for slot in {int(source[row]), *targets[row].tolist()} - {-1}:
            readers.setdefault(slot, set()).add(row)
    for slot, users in readers.items():
        if len(users) > 1 and (targets == slot).any():
            found = f"slot {slot} used by rows {sorted(users)}"
            raise ArrayError("ssm_state_indices", found, "no row writing a slot that another row uses")
