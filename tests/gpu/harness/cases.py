"""Inputs that broke other kernels of this family (K01 to K20), on the device."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from harness.outcome import Checks, Context, accepted
from harness.runner import decode, taken
from kdsl import kda
from kdsl.bench.outcome import Outcome
from kdsl.runtime import ArgumentTypeError, CallRequest, NoVariant
from kdsl.validate import bfloat16
from kdsl.validate.acceptance import NEARLY_EQUAL_KEYS_STATE_RMS_LIMIT, acceptance
from kdsl.validate.call import NEEDED, copy_of, decode_reference
from kdsl.validate.gpu_report import error_numbers
from kdsl.validate.probes import CHANNELS, HEADS, random_call

K18_LENGTHS = (17, 37, 97, 15, 31, 63, 500)
MANY_LENGTHS = (17, 0, 37, 16, 1, 64, 5, 33) * 8


def precomputed(call: dict[str, Any], log_decay: float) -> dict[str, Any]:
    """The call with its log decay given instead of computed in the kernel, in the dtype that q has."""
    gone = dict.fromkeys(("use_gate_in_kernel", "safe_gate", "A_log", "dt_bias", "lower_bound"))
    g = np.full(call["g"].shape, log_decay)
    return copy_of(call, g=bfloat16.encode(g), **gone)


def chunk_cases(context: Context) -> Checks:
    """The cases of kda.chunk_forward."""
    yield "K01 only empty sequences", partial(_k01, context)
    yield "K02 an empty sequence between others", partial(_k02, context)
    yield "K03 the largest published rate", partial(_k03, context)
    yield "K04 precomputed gates of -50", partial(_k04, context)
    yield "K05 keys in a common direction", partial(_k05, context)
    yield "K06 both state layouts", partial(_k06, context)
    yield "K07 no initial state, one token", partial(_k07, context)
    yield "K08 four calls that hand the state on", partial(_k08, context)
    yield "K12 a gate without its last axis", partial(_k12, context)
    yield "K13 every second element of a projection as beta", partial(_k13, context)
    yield "K14 a bias one element short", partial(_k14, context)
    yield "K15 inputs stay as they are", partial(_k15, context)
    yield "K16 fast decay over sixteen rows", partial(_k16, context)
    yield "K17 negative eigenvalues", partial(_k17, context)
    yield "K18 seven lengths in one call", partial(_k18, context)
    yield "lengths of 64 sequences in one call", partial(_many, context)
    yield "K19 both integer types of cu_seqlens", partial(_k19, context)
    yield "K20 states of two dtypes", _k20


def decode_cases(context: Context) -> Checks:
    """The cases of kda.decode, except K11, which is with the large inputs."""
    yield "K09 a negative index skips the row", partial(_k09, context)
    yield "K10 only the named slot changes", partial(_k10, context)
    yield "K20 states of two dtypes", _k20


def _k01(context: Context) -> Outcome:
    call = context.random_call(context.rng(1), 0, lengths=(0, 0))
    o, state = context.run(call)
    return _same("the final state", state, call["initial_state"], o.size == 0)


def _k02(context: Context) -> Outcome:
    call = context.random_call(context.rng(2), 128, lengths=(64, 0, 64))
    o, state = context.run(call)
    kept = _same("the empty sequence's final state", state[1], call["initial_state"][1])
    return kept if not kept.passed else accepted(context, call)


def _k03(context: Context) -> Outcome:
    rng = context.rng(3)
    rate = np.full(HEADS, np.log(201), np.float32)
    call = context.random_call(rng, 64, A_log=rate, g=rng.standard_normal((1, 64, HEADS, CHANNELS)))
    return accepted(context, call | {"lower_bound": None, "safe_gate": False})


def _k04(context: Context) -> Outcome:
    """Right, or a refusal that names the gate; never NaN."""
    try:
        return accepted(context, precomputed(context.random_call(context.rng(4), 64), -50.0))
    except NoVariant as refusal:
        named = all("gate" in line for line in refusal.refusals)
        return Outcome(named, "refused, the gate named" if named else f"refused otherwise: {refusal}")


def _k05(context: Context) -> Outcome:
    rng, shape = context.rng(5), (1, 256, HEADS, CHANNELS)
    keys = rng.standard_normal((1, 1, HEADS, CHANNELS)) + 0.01 * rng.standard_normal(shape)
    state = rng.normal(0, 0.25, (1, HEADS, CHANNELS, CHANNELS)).astype(np.float32)
    call = context.random_call(
        rng, 256, k=keys, v=0.5 * rng.standard_normal(shape), initial_state=state,
        beta=np.full(shape[:3], np.log(99)), A_log=np.zeros(HEADS, np.float32),
        dt_bias=np.zeros((HEADS, CHANNELS), np.float32), g=np.full(shape, np.log(2e-4)),
    )  # fmt: skip
    return accepted(context, call, NEARLY_EQUAL_KEYS_STATE_RMS_LIMIT)


def _k06(context: Context) -> Outcome:
    call = context.random_call(context.rng(6), 130)
    turned = copy_of(call, initial_state=call["initial_state"].swapaxes(-1, -2), state_v_first=True)
    first = accepted(context, call)
    o, state = context.run(copy_of(call))
    o_turned, state_turned = context.run(turned)
    if not first.passed or not np.array_equal(o, o_turned):
        return first if not first.passed else Outcome(False, "o differs between the layouts", first.numbers)
    equal = np.array_equal(state, np.swapaxes(state_turned, -1, -2))
    return Outcome(equal, "" if equal else "the final states are not transposed copies", first.numbers)


def _k07(context: Context) -> Outcome:
    call = context.random_call(context.rng(7), 1, with_state=False)
    zeros = np.zeros((1, HEADS, CHANNELS, CHANNELS), np.float32)
    first = accepted(context, call)
    results = zip(context.run(copy_of(call)), context.run(copy_of(call, initial_state=zeros)), strict=True)
    equal = all(np.array_equal(one, other) for one, other in results)
    if first.passed and not equal:
        return Outcome(False, "not what a state of zeros gives", first.numbers)
    return first


def _k08(context: Context) -> Outcome:
    call = context.random_call(context.rng(8), 256)
    o, state = context.run(call)
    carried, pieces = call["initial_state"], []
    for begin in range(0, 256, 64):
        part = {name: call[name][:, begin : begin + 64] for name in NEEDED}
        piece, carried = context.run(copy_of(call, **part, initial_state=carried))
        pieces.append(piece)
    return _agree(np.concatenate(pieces, axis=1), carried, o, state)


def _k12(context: Context) -> Outcome:
    arguments = context.run.arguments(context.random_call(context.rng(12), 16))
    return _refused(arguments | {"g": arguments["g"][..., 0]}, "g: found shape")


def _k13(context: Context) -> Outcome:
    """Right, or a refusal that names beta; never read as if contiguous."""
    arguments, (o, _) = taken(context.run.arguments(context.random_call(context.rng(13), 96)))
    beta = arguments["beta"]
    wide = beta.new_zeros((*beta.shape[:-1], 2 * beta.shape[-1]))
    wide[..., ::2] = beta
    try:
        strided, _ = kda.chunk_kda(**arguments | {"beta": wide[..., ::2]})
    except NoVariant as refusal:
        named = "beta has strides" in str(refusal)
        return Outcome(named, "refused by name" if named else f"refused otherwise: {refusal}")
    return _same("o", context.device.to_host(strided), context.device.to_host(o))


def _k14(context: Context) -> Outcome:
    arguments = context.run.arguments(context.random_call(context.rng(14), 16))
    short = arguments["dt_bias"].flatten()[:-1]
    return _refused(arguments | {"dt_bias": short}, "dt_bias: found shape")


def _k15(context: Context) -> Outcome:
    call = context.random_call(context.rng(15), 130)
    before = copy_of(call)
    context.run(call)
    written = [name for name, value in before.items()
               if isinstance(value, np.ndarray) and value.tobytes() != call[name].tobytes()]  # fmt: skip
    return Outcome(not written, f"written: {', '.join(written)}" if written else "")


def _k16(context: Context) -> Outcome:
    return accepted(context, precomputed(context.random_call(context.rng(16), 96), -10.0))


def _k17(context: Context) -> Outcome:
    call = context.random_call(context.rng(17), 96) | {"allow_neg_eigval": True}
    arguments = context.run.arguments(call) | {"use_beta_sigmoid_in_kernel": False}
    try:
        kda.chunk_kda(**arguments)
        return Outcome(False, "allow_neg_eigval without the sigmoid was taken")
    except ValueError:
        return accepted(context, call)


def _k18(context: Context) -> Outcome:
    call = context.random_call(context.rng(18), sum(K18_LENGTHS), lengths=K18_LENGTHS)
    first = accepted(context, call)
    o, state = context.run(copy_of(call))
    outputs, states = [], []
    for n, (begin, end) in enumerate(zip(call["cu_seqlens"], call["cu_seqlens"][1:], strict=False)):
        part = {name: call[name][:, begin:end] for name in NEEDED}
        one = copy_of(call, **part, initial_state=call["initial_state"][n : n + 1], cu_seqlens=None)
        piece, last = context.run(one)
        outputs.append(piece)
        states.append(last)
    agree = _agree(o, state, np.concatenate(outputs, axis=1), np.concatenate(states))
    return first if not first.passed or agree.passed else agree


def _many(context: Context) -> Outcome:
    """States enough for rules whose blocks fill the device."""
    return accepted(context, context.random_call(context.rng(24), sum(MANY_LENGTHS), lengths=MANY_LENGTHS))


def _k19(context: Context) -> Outcome:
    call = context.random_call(context.rng(19), 160, lengths=(63, 1, 96))
    long = context.run(call)
    short = context.run(copy_of(call, cu_seqlens=call["cu_seqlens"].astype(np.int32)))
    equal = all(np.array_equal(one, other) for one, other in zip(long, short, strict=True))
    return Outcome(equal, "" if equal else "int32 and int64 boundaries give different results")


def _k20() -> Outcome:
    """The public functions give the final state the dtype of the initial one; a request cannot differ."""
    try:
        CallRequest("kda.chunk_forward", "cpu", {"initial_state": "f32", "final_state": "bf16"}, {}, {}, {})
    except ArgumentTypeError as refusal:
        named = "bf16" in str(refusal) and "f32" in str(refusal)
        return Outcome(named, "" if named else f"the refusal does not name both: {refusal}")
    return Outcome(False, "taken")


def _k09(context: Context) -> Outcome:
    return _skipping(context, 9, slots=3, indices=[2, -1], live=[2])


def _k10(context: Context) -> Outcome:
    return _skipping(context, 10, slots=5, indices=[-1, 3], live=[3])


def _skipping(context: Context, key: int, slots: int, indices: list[int], live: list[int]) -> Outcome:
    call = decode_call(context.rng(key), 2, 1, slots=slots) | {"ssm_state_indices": np.array(indices)}
    o, pool = decode(context.device, call)
    result = acceptance(o, pool, *decode_reference(call))
    kept = [slot for slot in range(slots) if slot not in live]
    if not np.array_equal(pool[kept], call["pool"][kept]):
        return Outcome(False, "a slot that no row names was written", error_numbers(result))
    return Outcome(result.accepted, result.explain(), error_numbers(result))


def decode_call(
    rng: np.random.Generator, rows: int, tokens: int, *, slots: int | None = None
) -> dict[str, Any]:
    """A call of fused_recurrent_kda with a pool: bfloat16 inputs, everything in the kernel, bounded at -5."""
    flat = random_call(rng, rows * tokens, with_state=False)
    call = {name: value for name, value in flat.items() if name != "output_final_state"}
    for name in NEEDED:
        call[name] = flat[name].reshape(rows, tokens, *flat[name].shape[2:])
    size = (rows if slots is None else slots, HEADS, CHANNELS, CHANNELS)
    return call | {"pool": rng.normal(0, 0.3, size).astype(np.float32)}


def _refused(arguments: dict[str, Any], message: str) -> Outcome:
    try:
        kda.chunk_kda(**arguments)
    except (ValueError, TypeError) as refusal:
        return Outcome(message in str(refusal), str(refusal))
    return Outcome(False, "taken")


def _same(what: str, found: np.ndarray, needed: np.ndarray, also: bool = True) -> Outcome:
    equal = also and np.array_equal(found, needed)
    return Outcome(equal, "" if equal else f"{what} is not what it has to be, bit for bit")


def _agree(o: np.ndarray, state: np.ndarray, other_o: np.ndarray, other_state: np.ndarray) -> Outcome:
    """Equal bit for bit, or at least within the limits, one being the other's reference."""
    bitwise = np.array_equal(o, other_o) and np.array_equal(state, other_state)
    result = acceptance(o, state, other_o, other_state)
    detail = "bit for bit" if bitwise else f"not bit for bit: {result.explain()}"
    return Outcome(result.accepted, detail, {"bitwise": bitwise})
