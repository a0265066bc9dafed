"""Compiled CPU code on calls that its trial does not draw: tensors not given, offsets outside."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from kdsl.driver.trial import chunk_runner, decoded, poisoned, view
from kdsl.emulate.calls import chunk_call, decode_call
from kdsl.plan.model import Plan
from kdsl.runtime.launch import Program, launch
from kdsl.validate import oracle
from kdsl.validate.acceptance import acceptance
from kdsl.validate.call import reference

from .calls import Tried, same, stored, tiny

ACCEPTED = "accepted "


def results(plan: Plan, program: Program) -> str:
    """What is wrong with the first call that is rejected, or ACCEPTED and a digest of all results."""
    special = plan.specialization
    settings = {**special.dtypes, **special.options}
    digest = hashlib.sha256()
    for tried, run in CALLS[plan.operator.name](settings, special.sizes, program):
        o, state, needed = run(tried)
        judged = acceptance(o, state, *needed)
        if not judged.accepted:
            return f"{tried.name}: {judged.explain()}"[:160]
        digest.update(o.tobytes() + state.tobytes())
    return ACCEPTED + digest.hexdigest()


def chunk_calls(
    settings: Mapping, sizes: Mapping[str, int], program: Program
) -> Iterator[tuple[Tried, Callable]]:
    def run(tried: Tried):
        return *chunk_runner(program)(tried.call), reference(tried.judged)

    sizes = {"H": 1, "HV": 2, **sizes}
    packed = chunk_call(np.random.default_rng(41), sizes, (33, 0, 1, 16), settings)
    yield same("packed", packed), run
    outside = packed["cu_seqlens"] + np.array([-7, 0, 0, 0, 40])
    yield Tried("clamped", {**packed, "cu_seqlens": outside}, packed), run
    rows = dict(chunk_call(np.random.default_rng(42), {**sizes, "B": 2, "T": 37}, None, settings))
    if settings["gate"] != "precomputed":
        rows["g"] = stored(np.full(rows["g"].shape, -8.0), rows["g"].dtype)
    yield same("rows", {n: v for n, v in rows.items() if n not in ("initial_state", "dt_bias")}), run
    small = chunk_call(np.random.default_rng(43), sizes, (24,), settings)
    if settings["use_qk_l2norm_in_kernel"]:
        yield same("tiny rows", {**small, **tiny(small, np.random.default_rng(44), 1)}), run


def decode_calls(
    settings: Mapping, sizes: Mapping[str, int], program: Program
) -> Iterator[tuple[Tried, Callable]]:
    def run(tried: Tried):
        o, pool = run_decode(program, tried.call)
        return o, pool, oracle.decode(**tried.judged)

    sizes = {"H": 1, "HV": 2, **sizes}
    slots = {"slot_zero_is_real": settings["slot_zero_is_real"]}
    drawn = dict(decode_call(np.random.default_rng(45), {**sizes, "N": 3, "T": 2}, settings)) | slots
    yield same("slots", drawn), run
    if slots["slot_zero_is_real"]:
        yield same("own slots", {n: v for n, v in drawn.items() if n != "ssm_state_indices"}), run
    tokens = np.array([[3, 1], [2, -1], [4, 0]], np.int64)
    yield (
        same(
            "speculative", {**drawn, "ssm_state_indices": tokens, "num_accepted_tokens": np.array([1, 1, 1])}
        ),
        run,
    )


def run_decode(program: Program, call: Mapping) -> tuple[np.ndarray, np.ndarray]:
    """o and the pool after the call, as in the trial of lowering."""
    rows, tokens, heads, keys = call["q"].shape
    o, pool = poisoned(call["v"].shape, program.variant.dtypes["o"]), call["pool"].copy()
    arrays = {n: call[n] for n in ("q", "k", "v", "g", "beta", "A_log", "dt_bias") if call.get(n) is not None}
    columns = 1
    for name in ("ssm_state_indices", "num_accepted_tokens"):
        if call.get(name) is not None:
            arrays[name] = np.ascontiguousarray(call[name], np.int64)
    if "ssm_state_indices" in arrays:
        arrays["ssm_state_indices"] = arrays["ssm_state_indices"].reshape(rows, -1)
        columns = arrays["ssm_state_indices"].shape[1]
    arrays |= {"pool": pool, "o": o}
    sizes = {"N": rows, "T": tokens, "H": heads, "HV": call["v"].shape[2], "SLOTS": len(pool), "W": columns,
             "K": keys, "V": call["v"].shape[3]}  # fmt: skip
    scalars = {"scale": keys**-0.5, "lower_bound": call.get("lower_bound") or 0.0}
    views = {name: view(array) for name, array in arrays.items() if name in program.variant.dtypes}
    launch(program, views, sizes, {name: scalars[name] for name in program.scalars})
    return decoded(o), decoded(pool)


CALLS = {"kda.chunk_forward": chunk_calls, "kda.decode": decode_calls}
