"""kda.decode against the oracle: tables of slots, speculative tokens, layouts, and 2048 rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from harness.cases import decode_call
from harness.outcome import Checks, Context
from harness.runner import decode
from kdsl import kda
from kdsl.bench.cases import decode_tensors
from kdsl.bench.outcome import Outcome, Skip
from kdsl.validate.acceptance import (
    ELEMENT_SHARE_OF_RMS,
    ELEMENT_SHARE_OF_VALUE,
    RMS_LIMIT,
    acceptance,
)
from kdsl.validate.activation import L2NORM_EPSILON
from kdsl.validate.call import copy_of, decode_reference
from kdsl.validate.gpu_report import error_numbers
from kdsl.validate.probes import CHANNELS, LOWER_BOUND

ROWS, HEADS = 2048, 32
ROWS_AT_ONCE = 64
# Elements that 32-bit offsets do not reach.
FAR = 2**31


def decoding(context: Context) -> Checks:
    """Everything about kda.decode except K09 and K10."""
    for tokens in (1, 3, 8):
        yield f"{tokens} tokens in each row, no table", partial(_plain, context, tokens)
    yield "a table with one slot for each row", partial(_table, context, None)
    yield "a table that does not use slot 0", partial(_table, context, False)
    yield "one slot for each token, accepted counts", partial(_speculative, context, True)
    yield "one slot for each token, no counts", partial(_speculative, context, False)
    yield "slots outside the pool skip their rows", partial(_outside, context)
    yield "the pool as [SLOTS, HV, V, K]", partial(_turned, context)
    yield "a copy of the pool unless in place", partial(_copied, context)
    yield "slots beyond 2^31 elements", partial(_far_slots, context)
    yield "K11 2048 rows of 32 heads", partial(_many_rows, context)


def _judged(context: Context, call: Mapping[str, Any]) -> Outcome:
    result = acceptance(*decode(context.device, call), *decode_reference(call))
    return Outcome(result.accepted, result.explain(), error_numbers(result))


def _plain(context: Context, tokens: int) -> Outcome:
    return _judged(context, decode_call(context.rng(50, tokens), 5, tokens))


def _table(context: Context, slot_zero_is_real: bool | None) -> Outcome:
    call = decode_call(context.rng(51), 4, 1, slots=9) | {"ssm_state_indices": np.array([7, 0, -1, 3])}
    if slot_zero_is_real is not None:
        call["slot_zero_is_real"] = slot_zero_is_real
    return _judged(context, call)


def _speculative(context: Context, counted: bool) -> Outcome:
    table = np.array([[4, 1, 6], [2, 9, 3], [-1, -1, -1], [8, 5, 7]])
    call = decode_call(context.rng(52), 4, 3, slots=11) | {"ssm_state_indices": table}
    if counted:
        call["num_accepted_tokens"] = np.array([3, 1, 1, 2])
    return _judged(context, call)


def _outside(context: Context) -> Outcome:
    """By the operator's definition a slot outside the pool is none; nothing outside may be touched."""
    call = decode_call(context.rng(53), 4, 1, slots=4)
    outside = call | {"ssm_state_indices": np.array([2, 4, 2**40, 1])}
    skipped = call | {"ssm_state_indices": np.array([2, -1, -1, 1])}
    result = acceptance(*decode(context.device, outside), *decode_reference(skipped))
    return Outcome(result.accepted, result.explain(), error_numbers(result))


def _turned(context: Context) -> Outcome:
    call = decode_call(context.rng(54), 3, 2)
    o, pool = decode(context.device, call)
    turned = copy_of(call, pool=call["pool"].swapaxes(-1, -2))
    o_turned, pool_turned = decode(context.device, turned, state_v_first=True)
    equal = np.array_equal(o, o_turned) and np.array_equal(pool, np.swapaxes(pool_turned, -1, -2))
    return Outcome(equal, "" if equal else "the layouts give different results")


def _copied(context: Context) -> Outcome:
    call = decode_call(context.rng(55), 3, 1)
    tensors = {
        name: context.device.to_device(value) if isinstance(value, np.ndarray) else value
        for name, value in call.items()
    }
    pool = tensors.pop("pool")
    _, after = kda.fused_recurrent_kda(**tensors, initial_state=pool, output_final_state=True)
    kept = np.array_equal(context.device.to_host(pool), call["pool"])
    new = not np.array_equal(context.device.to_host(after), call["pool"])
    return Outcome(kept and new, "" if kept and new else "the given pool was written, or the copy was not")


def _far_slots(context: Context) -> Outcome:
    """The last slots of a pool of more than 2^31 elements give what those of a small pool give."""
    if context.small:
        raise Skip("it takes 9 GB")
    torch, name, rows = context.device.torch, context.device.name, 4
    tensors = decode_tensors(torch, name, rows, HEADS, context.seed)
    near = tensors.pop("pool")
    slots = FAR // near[0].numel() + 2 * rows
    far = torch.empty((slots, *near.shape[1:]), dtype=near.dtype, device=name)
    far[-rows:] = near
    table = torch.arange(rows, device=name)
    results = []
    for pool, indices in ((near, table), (far, table + (slots - rows))):
        o, _ = kda.fused_recurrent_kda(
            **tensors, initial_state=pool, inplace_final_state=True, ssm_state_indices=indices
        )
        results.append((o, pool[-rows:]))
    equal = all(torch.equal(*pair) for pair in zip(*results, strict=True))
    return Outcome(equal, "" if equal else "other results than those of a small pool")


def _many_rows(context: Context) -> Outcome:
    """All rows against one token of the recurrence in float64 on the device; a few against the oracle."""
    rows, heads = (16, 4) if context.small else (ROWS, HEADS)
    torch, name = context.device.torch, context.device.name
    tensors = decode_tensors(torch, name, rows, heads, context.seed)
    before = tensors.pop("pool")
    pool = before.clone()
    o, _ = kda.fused_recurrent_kda(**tensors, initial_state=pool, inplace_final_state=True)
    worst = [0.0, 0.0, 0.0, 0.0]
    for begin in range(0, rows, ROWS_AT_ONCE):
        part = slice(begin, begin + ROWS_AT_ONCE)
        needed_o, needed_pool = one_token(torch, tensors, before[part], part)
        found = (*_errors(torch, o[part], needed_o), *_errors(torch, pool[part], needed_pool))
        # NaN is worse than any number.
        worst = [x if x > y or x != x else y for x, y in zip(found, worst, strict=True)]
    passed = worst[0] <= RMS_LIMIT and worst[1] <= 1 and worst[2] <= RMS_LIMIT and worst[3] <= 1
    keys = ("o_rms", "o_element", "state_rms", "state_element")
    sampled = _sampled(context, tensors, before, o, pool)
    detail = f"worst of {ROWS_AT_ONCE} rows at a time: {dict(zip(keys, worst, strict=True))}"
    if not sampled.passed:
        return sampled
    return Outcome(passed, "" if passed else detail, dict(zip(keys, worst, strict=True)))


def _sampled(context: Context, tensors: Mapping[str, Any], before: Any, o: Any, pool: Any) -> Outcome:
    rows = sorted({0, 1, before.shape[0] // 2, before.shape[0] - 1})
    to_host = context.device.to_host
    call = {name: to_host(tensors[name][rows]) for name in ("q", "k", "v", "g", "beta")}
    call |= {"pool": to_host(before[rows]), "A_log": to_host(tensors["A_log"])}
    call |= {name: value for name, value in tensors.items() if not hasattr(value, "shape")}
    call["dt_bias"] = to_host(tensors["dt_bias"])
    result = acceptance(to_host(o[rows]), to_host(pool[rows]), *decode_reference(call))
    return Outcome(result.accepted, result.explain(), error_numbers(result))


def one_token(torch: Any, x: Mapping[str, Any], state: Any, part: slice) -> tuple[Any, Any]:
    """(o, states) in float64 after one token of the rows in `part`; the same heads for q, k and v."""
    q, k, v, g = (x[name][part, 0].double() for name in ("q", "k", "v", "g"))
    q, k = (y * torch.rsqrt((y * y).sum(-1, keepdim=True) + L2NORM_EPSILON) for y in (q, k))
    rate = x["A_log"].double().exp()[:, None]
    decay = (LOWER_BOUND * torch.sigmoid(rate * (g + x["dt_bias"].double()))).exp()
    state = state.double() * decay[..., None]
    beta = torch.sigmoid(x["beta"][part, 0].double())
    write = beta[..., None] * (v - torch.einsum("nhkv,nhk->nhv", state, k))
    state = state + k[..., None] * write[:, :, None, :]
    o = torch.einsum("nhkv,nhk->nhv", state, q) * CHANNELS**-0.5
    return o[:, None], state


def _errors(torch: Any, found: Any, needed: Any) -> tuple[float, float]:
    """The two ratios of kda.acceptance, computed on the device."""
    error, level = found.double() - needed, needed.square().mean().sqrt()
    limit = torch.maximum(ELEMENT_SHARE_OF_RMS * level, ELEMENT_SHARE_OF_VALUE * needed.abs())
    return float(error.square().mean().sqrt() / level), float((error.abs() / limit).max())
