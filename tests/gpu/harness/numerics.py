"""Probes, recorded inputs, relations, and the forms that inputs may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harness.outcome import Checks, Context, accepted
from harness.runner import taken
from kdsl import kda
from kdsl.bench.outcome import Outcome, Skip
from kdsl.runtime import NoVariant
from kdsl.validate import bfloat16
from kdsl.validate.acceptance import acceptance
from kdsl.validate.call import NEEDED, Call, copy_of, reference
from kdsl.validate.gpu_report import error_numbers
from kdsl.validate.judge import judge
from kdsl.validate.probes import CHANNELS, PROBES, ProbeKind, random_call
from kdsl.validate.relations import RELATIONS, batched_equals_packed, causality, splitting_at_chunk
from kdsl.validate.traces import TRACE_NAMES, first_sequences, load_trace

TRACES = Path(__file__).resolve().parents[3] / "data" / "traces"
# Elements that 32-bit offsets do not reach.
FAR = 2**31
ALWAYS_EXACT = ("inputs unchanged", "outputs complete", "doubling is exact")


def probes(context: Context) -> Checks:
    """Inputs that a cheating or sloppy kernel gets wrong."""
    for name, kind in PROBES.items():
        yield f"{name} {kind.catches}", partial(_probe, context, kind)


def _probe(context: Context, kind: ProbeKind) -> Outcome:
    verdict = judge(kind.make(context.seed), context.run)
    worst = max(verdict.results, key=lambda result: max(result.o.worst_share, result.final_state.worst_share))
    shares = [movement.share for movement in verdict.movements]
    numbers = {**error_numbers(worst), "runs": len(verdict.results)}
    if shares:
        numbers["least_share"] = min(shares)
    return Outcome(verdict.accepted, verdict.explain(), numbers)


def traces(context: Context) -> Checks:
    """Recorded inputs of trained networks."""
    for name in TRACE_NAMES:
        yield name, partial(_trace, context, name)


def _trace(context: Context, name: str) -> Outcome:
    call = load_trace(TRACES / f"{name}.npz")
    return accepted(context, first_sequences(call, 3) if context.quick and context.small else call)


def relations(context: Context) -> Checks:
    """What holds between runs of every honest kernel."""
    packed = partial(_packed, context, 21)
    for name, check in RELATIONS.items():
        yield name, partial(_relation, context, check, packed, name in ALWAYS_EXACT)
    single = partial(context.random_call, context.rng(22), 192)
    yield "splitting at token 64", partial(_relation, context, splitting_at_chunk, single, False)
    yield "causality at token 128", partial(_relation, context, partial(causality, at=128), packed, False)
    batch = partial(_batch, context, 23)
    yield "batched equals packed", partial(_relation, context, batched_equals_packed, batch, False)


def _relation(context: Context, check: Callable, make: Callable[[], Call], exact_only: bool) -> Outcome:
    """Bit for bit; where a kernel's cuts may depend on the length, within the limits, and that is said."""
    call = make()
    findings = check(context.run, call)
    if not findings:
        return Outcome(True, "" if exact_only else "bit for bit", {} if exact_only else {"bitwise": True})
    detail = " ".join(finding.explain() for finding in findings)
    if exact_only or check(context.run, call, exact=False):
        return Outcome(False, detail)
    return Outcome(True, f"within the limits, not bit for bit: {detail}", {"bitwise": False})


def _packed(context: Context, key: int) -> dict[str, Any]:
    lengths = (70, 0, 131, 1, 192)
    return context.random_call(context.rng(key), sum(lengths), lengths=lengths)


def _batch(context: Context, key: int) -> dict[str, Any]:
    calls = [context.random_call(context.rng(key, row), 100) for row in range(3)]
    stacked = {name: np.concatenate([call[name] for call in calls]) for name in (*NEEDED, "initial_state")}
    return calls[0] | stacked


def forms(context: Context) -> Checks:
    """The forms that inputs may have: heads, dtypes, strides, parameters, no final state."""
    yield "four value heads for each query head", partial(_value_heads, context)
    yield "float16", partial(_cast, context, np.float16)
    yield "float32", partial(_cast, context, np.float32)
    yield "g and beta in float32", partial(_cast, context, np.float32, ("g", "beta"))
    yield "state in bfloat16", partial(_bfloat16_state, context)
    yield "no initial state", partial(_without, context, "initial_state")
    yield "no bias of the gate", partial(_without, context, "dt_bias")
    yield "a scale of its own", partial(_scale, context)
    yield "a bound that 16 tokens of decay overflow with", partial(_low_bound, context)
    yield "no final state", partial(_no_final_state, context)
    for name in (*NEEDED, "initial_state"):
        yield f"{name} with strides of its own", partial(_strided, context, name, _every_second)
    for name in NEEDED[:4]:
        yield f"{name} as a slice of a wider projection", partial(_strided, context, name, _slice)
    yield "q, k and v transposed from [B, H, T, K]", partial(_transposed, context)
    for name in ("q", "v"):
        yield f"{name} beyond 2^31 elements", partial(_far, context, name)
    yield "boundaries outside the tensors", partial(_bad_boundaries, context)


def _value_heads(context: Context) -> Outcome:
    rng, lengths, heads = context.rng(31), (33, 64, 3), 8
    call, tokens = context.random_call(rng, 100, lengths=lengths), 100
    wide = (1, tokens, heads, CHANNELS)
    call |= {name: bfloat16.encode(rng.standard_normal(wide)) for name in ("v", "g")}
    call["beta"] = bfloat16.encode(rng.standard_normal(wide[:3]))
    call["A_log"] = rng.uniform(-0.3, 0.3, heads).astype(np.float32)
    call["dt_bias"] = rng.normal(-4, 0.3, (heads, CHANNELS)).astype(np.float32)
    call["initial_state"] = rng.normal(0, 0.3, (3, heads, CHANNELS, CHANNELS)).astype(np.float32)
    return accepted(context, call)


def _cast(context: Context, dtype: type, names: tuple[str, ...] = NEEDED) -> Outcome:
    call = context.random_call(context.rng(32), 130, lengths=(47, 83))
    return accepted(context, call | {name: bfloat16.values_of(name, call[name], dtype) for name in names})


def _bfloat16_state(context: Context) -> Outcome:
    call = context.random_call(context.rng(33), 130)
    return accepted(context, call | {"initial_state": bfloat16.encode(call["initial_state"])})


def _without(context: Context, name: str) -> Outcome:
    return accepted(context, copy_of(context.random_call(context.rng(34), 130), **{name: None}))


def _scale(context: Context) -> Outcome:
    return accepted(context, context.random_call(context.rng(35), 130) | {"scale": 0.37})


def _low_bound(context: Context) -> Outcome:
    """Right, or a refusal that names the bound; never NaN."""
    call = random_call(context.rng(41), 130) | {"lower_bound": -20.0, "safe_gate": False}
    try:
        return accepted(context, call)
    except NoVariant as refusal:
        if context.gate != "bounded" or "g is bf16" in str(refusal):
            raise  # nothing here is for bounded gates of 16 bits: refused as such
        named = "lower_bound = -20.0" in str(refusal)
        return Outcome(named, "refused, the bound named" if named else f"refused otherwise: {refusal}")


def _no_final_state(context: Context) -> Outcome:
    call = context.random_call(context.rng(36), 130)
    o, none = context.run(call | {"output_final_state": False})
    needed, state = reference(call)
    result = acceptance(o, state, needed, state)
    return Outcome(none is None and result.o.accepted, result.o.explain())


def _every_second(torch: Any, tensor: Any) -> Any:
    wide = _wider(torch, tensor, tensor.shape[-1])
    wide[..., ::2] = tensor
    return wide[..., ::2]


def _slice(torch: Any, tensor: Any) -> Any:
    wide = _wider(torch, tensor, 64)
    wide[..., : tensor.shape[-1]] = tensor
    return wide[..., : tensor.shape[-1]]


def _wider(torch: Any, tensor: Any, more: int) -> Any:
    """NaN in the tensor's dtype, its last axis longer by `more`."""
    shape = (*tensor.shape[:-1], tensor.shape[-1] + more)
    return torch.full(shape, torch.nan, dtype=tensor.dtype, device=tensor.device)


def _strided(context: Context, name: str, relaid: Callable[[Any, Any], Any]) -> Outcome:
    """What the contiguous tensor gives, bit for bit, or a refusal that names the tensor."""
    arguments, needed = taken(context.run.arguments(context.random_call(context.rng(37), 96)))
    return _as_contiguous(context, arguments, needed, {name: relaid(context.device.torch, arguments[name])})


def _transposed(context: Context) -> Outcome:
    arguments, needed = taken(context.run.arguments(context.random_call(context.rng(38), 96)))
    heads_first = {name: arguments[name].transpose(1, 2).contiguous() for name in ("q", "k", "v")}
    return _as_contiguous(context, arguments, needed, {n: t.transpose(1, 2) for n, t in heads_first.items()})


def _far(context: Context, name: str) -> Outcome:
    """Tokens so far apart that the last is beyond 2^31 elements."""
    if context.small:
        raise Skip("it takes 5 GB")
    arguments, needed = taken(context.run.arguments(context.random_call(context.rng(40), 70)))
    tensor, apart = arguments[name], FAR // 64
    memory = tensor.new_empty(tensor.shape[1] * apart)
    far = memory.as_strided(tensor.shape, (memory.numel(), apart, *tensor.stride()[2:]))
    far.copy_(tensor)
    return _as_contiguous(context, arguments, needed, {name: far})


def _as_contiguous(
    context: Context, arguments: Mapping[str, Any], needed: tuple[Any, Any], changed: Mapping[str, Any]
) -> Outcome:
    try:
        found = kda.chunk_kda(**{**arguments, **changed})
    except NoVariant as refusal:
        said = [f"{name} {word}" for name in changed for word in ("has strides", "starts")]
        named = any(words in str(refusal) for words in said)
        return Outcome(named, "refused by name" if named else f"refused otherwise: {refusal}")
    equal = all(context.device.torch.equal(one, other) for one, other in zip(found, needed, strict=True))
    return Outcome(equal, "read by its strides" if equal else "another result than the contiguous tensor's")


def _bad_boundaries(context: Context) -> Outcome:
    """They must not make a kernel leave its tensors; every element of o is written."""
    call = context.random_call(context.rng(39), 96, lengths=(32, 32, 32))
    for contents in ([0, 90, 40, 96], [7, 200, -5, 3], [0, 2**40, -(2**40), 96]):
        call["cu_seqlens"][...] = contents
        o, state = context.run(call)
        values = (bfloat16.values_of("o", o), bfloat16.values_of("final_state", state))
        if not all(np.isfinite(array).all() for array in values):
            return Outcome(False, f"cu_seqlens = {contents} leaves elements unwritten or not finite")
    return Outcome(True, "brought into range")
