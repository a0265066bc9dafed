"""Checks that both public functions share. Every error names the argument, what it is and what it has to
be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import attrs

from kdsl.runtime.errors import ArgumentTypeError, ArgumentValueError, MissingTorch
from kdsl.runtime.request import LAYOUT_OPTION
from kdsl.runtime.targets import TARGETS
from kdsl.runtime.tensor import TensorView

SAFE_LOWER_BOUND = -5.0


def torch_module() -> ModuleType:
    """PyTorch. Raises MissingTorch."""
    try:
        import torch
    except ImportError as failure:
        raise MissingTorch(str(failure)) from failure
    return torch


@attrs.frozen
class Flags:
    """The options of a call, checked. `gate` is precomputed, softplus or bounded; `scale` and `lower_bound`
    f32.
    """

    gate: str
    use_qk_l2norm_in_kernel: bool
    use_beta_sigmoid_in_kernel: bool
    allow_neg_eigval: bool
    scale: float | None
    lower_bound: float
    state_v_first: bool

    def options(self) -> dict[str, str | bool]:
        """The static options by the operator's names."""
        return {
            "gate": self.gate,
            "use_qk_l2norm_in_kernel": self.use_qk_l2norm_in_kernel,
            "use_beta_sigmoid_in_kernel": self.use_beta_sigmoid_in_kernel,
            "allow_neg_eigval": self.allow_neg_eigval,
            LAYOUT_OPTION: self.state_v_first,
        }

    def scalars(self, head_dimension: int) -> dict[str, float]:
        """The runtime scalars; `scale` is K ** -0.5 unless given, `lower_bound` 0 unless the gate is
        bounded.
        """
        scale = head_dimension**-0.5 if self.scale is None else self.scale
        return {"scale": scale, "lower_bound": self.lower_bound}


def read_flags(
    *,
    scale: float | None,
    use_qk_l2norm_in_kernel: bool,
    use_gate_in_kernel: bool,
    use_beta_sigmoid_in_kernel: bool,
    allow_neg_eigval: bool,
    safe_gate: bool,
    lower_bound: float | None,
    state_v_first: bool,
    transpose_state_layout: bool | None,
) -> Flags:
    """Check the options that involve no tensor. Raises ArgumentValueError."""
    if state_v_first and transpose_state_layout is not None:
        raise ArgumentValueError(
            "transpose_state_layout",
            "state_v_first and transpose_state_layout together",
            "one name for the state's layout",
            "keep state_v_first; transpose_state_layout is its older name",
        )
    if allow_neg_eigval and not use_beta_sigmoid_in_kernel:
        raise ArgumentValueError(
            "allow_neg_eigval",
            "allow_neg_eigval=True without use_beta_sigmoid_in_kernel",
            "use_beta_sigmoid_in_kernel=True, because the factor 2 belongs to the sigmoid",
            "set it and pass beta before the sigmoid, or pass a doubled beta with both flags off",
        )
    _check_bound(use_gate_in_kernel, safe_gate, lower_bound)
    if scale is not None and not math.isfinite(scale):
        raise ArgumentValueError("scale", str(scale), "a finite number or None", "leave it out for K ** -0.5")
    gate = "precomputed" if not use_gate_in_kernel else "softplus" if lower_bound is None else "bounded"
    return Flags(
        gate=gate,
        use_qk_l2norm_in_kernel=bool(use_qk_l2norm_in_kernel),
        use_beta_sigmoid_in_kernel=bool(use_beta_sigmoid_in_kernel),
        allow_neg_eigval=bool(allow_neg_eigval),
        scale=None if scale is None else float(scale),
        lower_bound=0.0 if lower_bound is None else float(lower_bound),
        state_v_first=bool(state_v_first if transpose_state_layout is None else transpose_state_layout),
    )


def _check_bound(use_gate_in_kernel: bool, safe_gate: bool, lower_bound: float | None) -> None:
    if safe_gate and (lower_bound is None or not SAFE_LOWER_BOUND <= lower_bound < 0):
        raise ArgumentValueError(
            "lower_bound",
            f"lower_bound={lower_bound} with safe_gate=True",
            f"lower_bound in [{SAFE_LOWER_BOUND:g}, 0)",
            "give such a lower_bound, or leave safe_gate out",
        )
    if lower_bound is None:
        return
    if not (lower_bound < 0 and math.isfinite(lower_bound)):
        raise ArgumentValueError(
            "lower_bound", str(lower_bound), "a finite number below 0", "leave it out for a softplus gate"
        )
    if not use_gate_in_kernel:
        raise ArgumentValueError(
            "lower_bound",
            f"lower_bound={lower_bound} with use_gate_in_kernel=False",
            "no lower_bound, because g is then the log decay itself",
            "set use_gate_in_kernel=True, or leave lower_bound and safe_gate out",
        )


def check_tensor(torch: ModuleType, name: str, value: Any) -> None:
    """Raise ArgumentTypeError unless `value` is a torch tensor whose memory holds its values."""
    if not isinstance(value, torch.Tensor):
        raise ArgumentTypeError(
            name, type(value).__name__, "a torch tensor", "convert it with torch.as_tensor"
        )
    if value.layout is not torch.strided:
        raise ArgumentTypeError(name, f"layout {value.layout}", "a strided tensor", "call .to_dense() on it")
    if value.is_neg():
        raise ArgumentTypeError(
            name, "a lazily negated tensor", "a plain tensor", "call .resolve_neg() on it"
        )


def check_shape(name: str, tensor: Any, letters: str, expected: tuple[int, ...], remedy: str) -> None:
    """Raise ArgumentValueError unless the tensor has exactly the shape `expected`, written as `letters`."""
    if tensor.shape != expected:
        raise ArgumentValueError(
            name, f"shape {list(tensor.shape)}", f"[{letters}] = {list(expected)}", remedy
        )


def check_dtype(name: str, tensor: Any, allowed: tuple[Any, ...], remedy: str) -> None:
    """Raise ArgumentTypeError unless the tensor's dtype is one of `allowed`."""
    if tensor.dtype not in allowed:
        needed = " or ".join(str(dtype) for dtype in dict.fromkeys(allowed))
        raise ArgumentTypeError(name, f"dtype {tensor.dtype}", needed, remedy)


def read_sizes(torch: ModuleType, letter: str, q: Any, k: Any, v: Any, g: Any, beta: Any) -> dict[str, int]:
    """Check q, k, v, g, beta against each other and return the sizes `letter`, T, H, HV, K, V.

    `letter` names the first axis (B or N). Shapes [., T, H, K], [., T, HV, V], [., T, HV, K], [., T, HV]; q,
    k, v of one dtype out of bf16, f16, f32; g and beta of the same or f32. Raises ArgumentTypeError,
    ArgumentValueError.
    """
    for name, tensor in (("q", q), ("k", k), ("v", v), ("g", g), ("beta", beta)):
        if tensor is None:
            raise ArgumentTypeError(name, "None", "a torch tensor", "give it")
    for name, tensor, letters in (("q", q, "T, H, K"), ("v", v, "T, HV, V")):
        if tensor.dim() != 4:
            raise ArgumentValueError(
                name, f"shape {list(tensor.shape)}", f"four axes [{letter}, {letters}]", "reshape it"
            )
    rows, length, heads, key = q.shape
    value_heads, value = v.shape[2:]
    like_q = f"{letter}, T, H and K come from q"
    check_shape("k", k, f"{letter}, T, H, K", (rows, length, heads, key), like_q)
    check_shape(
        "v", v, f"{letter}, T, HV, V", (rows, length, value_heads, value), f"{letter} and T come from q"
    )
    like_both = f"{letter}, T and K come from q, HV from v"
    check_shape("g", g, f"{letter}, T, HV, K", (rows, length, value_heads, key), like_both)
    check_shape("beta", beta, f"{letter}, T, HV", (rows, length, value_heads), like_both)
    if heads < 1 or value_heads < 1 or value_heads % heads:
        raise ArgumentValueError(
            "v",
            f"HV = {value_heads} value heads for H = {heads} query heads",
            "HV a multiple of H, both 1 or more",
            "repeat the value heads, or reshape v",
        )
    for name, letters, size in (("q", "K", key), ("v", "V", value)):
        if not 16 <= size <= 256:
            raise ArgumentValueError(
                name, f"{letters} = {size}", f"{letters} from 16 to 256", "pad the head axis"
            )
    check_dtype("q", q, (torch.bfloat16, torch.float16, torch.float32), "convert q, k and v")
    for name, tensor in (("k", k), ("v", v)):
        check_dtype(name, tensor, (q.dtype,), f"q is {q.dtype}; q, k and v need one dtype")
    for name, tensor in (("g", g), ("beta", beta)):
        if tensor.dtype != q.dtype:
            check_dtype(name, tensor, (q.dtype, torch.float32), f"convert {name}; q is {q.dtype}")
    return {letter: rows, "T": length, "H": heads, "HV": value_heads, "K": key, "V": value}


def gate_views(
    torch: ModuleType, gate: str, A_log: Any, dt_bias: Any, sizes: Mapping[str, int]
) -> dict[str, TensorView]:
    """The views of A_log [HV] and dt_bias [HV, K] (given so or as [HV * K]), both f32, where the gate takes
    them.

    Raises ArgumentTypeError, ArgumentValueError.
    """
    if gate == "precomputed":
        for name, tensor in (("A_log", A_log), ("dt_bias", dt_bias)):
            if tensor is not None:
                raise ArgumentValueError(
                    name,
                    f"{name} with use_gate_in_kernel=False",
                    f"no {name}, because g is then the log decay itself",
                    f"set use_gate_in_kernel=True, or leave {name} out",
                )
        return {}
    if A_log is None:
        raise ArgumentValueError(
            "A_log",
            "None with use_gate_in_kernel=True",
            "a tensor [HV]",
            "give it, or compute the gate yourself",
        )
    heads, key = sizes["HV"], sizes["K"]
    check_shape("A_log", A_log, "HV", (heads,), "HV comes from v")
    check_dtype("A_log", A_log, (torch.float32,), "convert it with .float()")
    views = {"A_log": TensorView.from_torch(A_log)}
    if dt_bias is None:
        return views
    check_dtype("dt_bias", dt_bias, (torch.float32,), "convert it with .float()")
    view = TensorView.from_torch(dt_bias)
    if dt_bias.shape == (heads * key,):
        view = view.with_axis_split(heads, key)
    elif dt_bias.shape != (heads, key):
        raise ArgumentValueError(
            "dt_bias",
            f"shape {list(dt_bias.shape)}",
            f"[HV * K] = [{heads * key}] or [HV, K] = [{heads}, {key}]",
            "HV comes from v, K from q",
        )
    views["dt_bias"] = view
    return views


def read_target(torch: ModuleType, tensors: Mapping[str, Any]) -> str:
    """The target for the tensors that are not None; `q` is among them.

    Raises ArgumentTypeError for what is no tensor, ArgumentValueError if devices differ or no target serves
    them, or if a tensor requires grad while grad mode is on.
    """
    recording = torch.is_grad_enabled()
    check_tensor(torch, "q", tensors["q"])
    device = tensors["q"].device
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        check_tensor(torch, name, tensor)
        if tensor.device != device:
            raise ArgumentValueError(
                name, f"device {tensor.device}", f"{device}, where q is", f"move it with .to('{device}')"
            )
        if recording and tensor.requires_grad:
            raise ArgumentValueError(
                name,
                "a tensor that requires grad",
                "a call without gradients, because there is no backward",
                "call under torch.no_grad(), or pass the tensor's .detach()",
            )
    if device.type not in TARGETS:
        raise ArgumentValueError(
            "q", f"device {device}", f"a device of type {', '.join(TARGETS)}", "move the tensors with .cpu()"
        )
    return TARGETS[device.type](torch, device)
