"""A bundle run on NumPy calls: how lowering measures the error of CPU code that it has just made."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from attrs import frozen

from kdsl.bundle.load import Bundle, load_bundle
from kdsl.bundle.manifest import Variant
from kdsl.plan.model import Plan
from kdsl.runtime.launch import Program, launch, open_variant
from kdsl.runtime.tensor import TensorView
from kdsl.validate import bfloat16, oracle
from kdsl.validate.acceptance import acceptance
from kdsl.validate.call import output_shapes, reference, state_v_first

SWITCHES = ("use_qk_l2norm_in_kernel", "use_beta_sigmoid_in_kernel", "allow_neg_eigval")


def view(array: np.ndarray) -> TensorView:
    """uint16 arrays are bfloat16 patterns."""
    return TensorView.from_numpy(array, "bf16" if array.dtype == np.uint16 else None)


def chunk_runner(program: Program) -> Callable[[Mapping], tuple[np.ndarray, np.ndarray]]:
    """`run(call)` for a variant of kda.chunk_forward; outputs are NaN before the launch."""

    def run(call: Mapping) -> tuple[np.ndarray, np.ndarray]:
        o_shape, state_shape = output_shapes(call)
        dtypes = program.variant.dtypes
        o, state = poisoned(o_shape, dtypes["o"]), poisoned(state_shape, dtypes["final_state"])
        launch_chunk(program, call, o, state)
        return decoded(o), decoded(state)

    return run


def poisoned(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype == "bf16":
        return np.full(shape, 0x7FC0, np.uint16)
    return np.full(shape, np.nan, np.float16 if dtype == "f16" else np.float32)


def decoded(array: np.ndarray) -> np.ndarray:
    return bfloat16.decode(array) if array.dtype == np.uint16 else array


def launch_chunk(program: Program, call: Mapping, o: np.ndarray, state: np.ndarray) -> None:
    q, v, cu = call["q"], call["v"], call.get("cu_seqlens")
    batch, tokens, heads, keys = q.shape
    sequences = batch if cu is None else len(cu) - 1
    sizes = {"B": batch, "T": tokens, "H": heads, "HV": v.shape[2], "N": sequences, "K": keys, "V": v.shape[3]}
    arrays = {name: call[name] for name in ("q", "k", "v", "g", "beta")}
    arrays.update({n: call[n] for n in ("A_log", "dt_bias", "initial_state") if call.get(n) is not None})
    if cu is not None:
        arrays["cu_seqlens"] = np.ascontiguousarray(cu, np.int64)
    arrays.update(o=o, final_state=state)
    wanted = program.variant.dtypes
    tensors = {name: view(array) for name, array in arrays.items() if name in wanted}
    if "dt_bias" in tensors and len(tensors["dt_bias"].shape) == 1:
        tensors["dt_bias"] = tensors["dt_bias"].with_axis_split(sizes["HV"], keys)
    if state_v_first(call):
        for name in ("initial_state", "final_state"):
            if name in tensors:
                tensors[name] = tensors[name].with_last_axes_swapped()
    scale = call.get("scale")
    scalars = {"scale": keys**-0.5 if scale is None else scale, "lower_bound": call.get("lower_bound") or 0.0}
    launch(program, tensors, sizes, {name: scalars[name] for name in program.scalars})


def open_first(path: Path) -> Program:
    bundle: Bundle = load_bundle(path)
    variant: Variant = bundle.manifest.variants[0]
    return open_variant(bundle, variant)


@frozen
class Trial:
    """Whether the code passed, and in numbers what was seen."""

    accepted: bool
    found: str


def honest_error(plan: Plan, path: Path, seed: int | None = None) -> Trial | None:
    """The code of a bundle against the float64 oracle on random inputs, or None where no trial is written.

    The seed is drawn anew each time: code cannot have been made for it.
    """
    trial = TRIALS.get(plan.operator.name)
    if trial is None:
        return None
    rng = np.random.default_rng(secrets.randbits(64) if seed is None else seed)
    return trial(plan, open_first(path), rng)


def chunk_trial(plan: Plan, program: Program, rng: np.random.Generator) -> Trial:
    call = trial_call(plan, rng)
    result = acceptance(*chunk_runner(program)(call), *reference(call))
    worst = max(result.o.rms_ratio, result.final_state.rms_ratio)
    return Trial(result.accepted, f"{worst:.2g} of the reference's rms, worst element"
                 f" {max(result.o.worst_share, result.final_state.worst_share):.2g} of its limit")  # fmt: skip


def trial_call(plan: Plan, rng: np.random.Generator) -> dict:
    """Two sequences with tails, four heads on two key heads, in the dtypes and options of the plan."""
    options, sizes, dtypes = plan.specialization.options, plan.specialization.sizes, plan.specialization.dtypes
    tokens, lengths, keys, values = 83, (37, 46), sizes["K"], sizes["V"]
    draw = rng.standard_normal
    gate, sigmoid_beta = options["gate"], options["use_beta_sigmoid_in_kernel"]
    unit = 1.0 if options["use_qk_l2norm_in_kernel"] else keys**-0.5
    call = {
        "q": draw((1, tokens, 2, keys)) * unit, "k": draw((1, tokens, 2, keys)) * unit,
        "v": draw((1, tokens, 4, values)) * 0.5,
        "g": draw((1, tokens, 4, keys)) if gate != "precomputed" else -np.exp(draw((1, tokens, 4, keys)) - 1.0),
        "beta": draw((1, tokens, 4)) if sigmoid_beta else 1.0 / (1.0 + np.exp(-draw((1, tokens, 4)))),
        "initial_state": draw((2, 4, keys, values)) * 0.25,
    }  # fmt: skip
    call = {name: stored(array, dtypes[name]) for name, array in call.items()}
    call["cu_seqlens"] = np.cumsum((0, *lengths)).astype(np.int64)
    call.update({name: True for name in SWITCHES if options[name]})
    if gate != "precomputed":
        call.update(use_gate_in_kernel=True, A_log=np.log(rng.uniform(0.5, 4.0, 4)).astype(np.float32),
                    dt_bias=(draw((4, keys)) * 0.1).astype(np.float32))  # fmt: skip
    if gate == "bounded":
        call["lower_bound"] = -5.0
    return call


def stored(array: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bf16":
        return bfloat16.encode(array)
    return array.astype(np.float16 if dtype == "f16" else np.float32)


def decode_trial(plan: Plan, program: Program, rng: np.random.Generator) -> Trial:
    """Three rows of two tokens, one of them skipped, in a pool with slots that nobody owns."""
    options, dtypes = plan.specialization.options, plan.specialization.dtypes
    keys, values = plan.specialization.sizes["K"], plan.specialization.sizes["V"]
    draw = rng.standard_normal
    arrays = {
        "q": draw((3, 2, 2, keys)), "k": draw((3, 2, 2, keys)), "v": draw((3, 2, 4, values)) * 0.5,
        "g": draw((3, 2, 4, keys)) if options["gate"] != "precomputed" else -np.exp(draw((3, 2, 4, keys)) - 1.0),
        "beta": draw((3, 2, 4)) if options["use_beta_sigmoid_in_kernel"] else rng.random((3, 2, 4)),
        "pool": draw((5, 4, keys, values)) * 0.25,
    }  # fmt: skip
    if not options["use_qk_l2norm_in_kernel"]:
        arrays["q"], arrays["k"] = arrays["q"] * keys**-0.5, arrays["k"] * keys**-0.5
    arrays = {name: stored(array, dtypes[name]) for name, array in arrays.items()}
    gates = {}
    if options["gate"] != "precomputed":
        gates = {"A_log": np.log(rng.uniform(0.5, 4.0, 4)).astype(np.float32),
                 "dt_bias": (draw((4, keys)) * 0.1).astype(np.float32)}  # fmt: skip
    bound = {"lower_bound": -5.0} if options["gate"] == "bounded" else {}
    rows = np.array([[3], [-1], [1]], np.int64)
    needed = oracle.decode(
        **arrays, **gates, **bound, ssm_state_indices=rows[:, 0], gate=options["gate"],
        slot_zero_is_real=options["slot_zero_is_real"], use_qk_l2norm=options["use_qk_l2norm_in_kernel"],
        beta_sigmoid=options["use_beta_sigmoid_in_kernel"], allow_neg_eigval=options["allow_neg_eigval"],
    )  # fmt: skip
    o, pool = poisoned((3, 2, 4, values), dtypes["o"]), arrays["pool"].copy()
    tensors = {**arrays, **gates, "pool": pool, "ssm_state_indices": rows, "o": o}
    sizes = {"N": 3, "T": 2, "H": 2, "HV": 4, "SLOTS": 5, "W": 1, "K": keys, "V": values}
    scalars = {"scale": keys**-0.5, "lower_bound": -5.0}
    views = {name: view(array) for name, array in tensors.items() if name in program.variant.dtypes}
    launch(program, views, sizes, {name: scalars[name] for name in program.scalars})
    result = acceptance(decoded(o), decoded(pool), *needed)
    return Trial(result.accepted, f"{result.o.rms_ratio:.2g} of the reference's rms in o, "
                 f"{result.final_state.rms_ratio:.2g} in the states")  # fmt: skip


TRIALS = {"kda.chunk_forward": chunk_trial, "kda.decode": decode_trial}
