"""A bundle run on NumPy calls: how lowering measures the error of CPU code that it has just made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from kdsl.bundle.load import Bundle, load_bundle
from kdsl.bundle.manifest import Variant
from kdsl.runtime.launch import Program, launch, open_variant
from kdsl.runtime.tensor import TensorView
from kdsl.validate import bfloat16
from kdsl.validate.call import output_shapes, state_v_first

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
