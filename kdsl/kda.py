"""Kimi Delta Attention on torch tensors: `chunk_kda` and `fused_recurrent_kda`.

A call runs on a prebuilt bundle if one that fits is registered (`use_bundle`, or the environment variable
KDSL_BUNDLES, a list of paths), else on what the compiler makes of it if it is installed and KDSL_COMPILE is
not 0. Why a variant was refused is logged at INFO to the logger "kdsl.kda". Tensors on a GPU run code for
exactly that GPU (sm_90a) if there is any, else other code that runs there (sm_80 on a GPU of capability 8.6),
on PyTorch's current stream: a call does not wait for the device and can be captured into a CUDA graph. Names
and meaning follow flash-linear-attention. The state mathematics is in float32 or better. There is no
backward.

With heads h = hv // (HV / H), each token does S <- diag(exp(g)) S; d = beta (v - S^T k); S <- S + k d^T;
o = S^T q (Kimi Linear, arXiv:2510.26692).
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

from kdsl.bundle.load import Bundle
from kdsl.runtime.arguments import read_flags, torch_module
from kdsl.runtime.chunk import chunk_call
from kdsl.runtime.decode import decode_call
from kdsl.runtime.launch import launch
from kdsl.runtime.request import Call, CallRequest
from kdsl.runtime.shelf import Shelf

if TYPE_CHECKING:
    from torch import Tensor

COMPILE_VARIABLE = "KDSL_COMPILE"

__all__ = ["accept_proved_only", "chunk_kda", "forget_bundles", "fused_recurrent_kda", "use_bundle"]


def use_bundle(path: Path | str) -> Bundle:
    """Register the prebuilt bundle at `path`; calls try its variants after those registered before it.

    A bundle is code: its hashes show damage, not origin, so use only bundles you trust. Raises BundleError:
    NotABundle, ManifestError, TamperedBundle, UnsafePath, WrongMachine.
    """
    return _shelf.add(path)


def accept_proved_only(on: bool = True) -> None:
    """Run only code whose bundle carries a proof that its schedule computes the operator (`same_algorithm`, evidence
    `field`); so does the environment variable KDSL_PROVED=1. What the compiler makes is then proved first, which
    takes some seconds for each new kind of call. Without a proof a call raises NoVariant."""
    _shelf.accept_proved_only(on)


def forget_bundles() -> None:
    """Forget all bundles, registered and built; KDSL_BUNDLES is read again at the next call."""
    _shelf.clear()


def chunk_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    cu_seqlens: Tensor | None = None,
    state_v_first: bool = False,
    transpose_state_layout: bool | None = None,
    *,
    check_values: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """KDA over whole sequences: (o, final_state or None).

    q, k [B, T, H, K] and v [B, T, HV, V] in one of bf16, fp16, fp32; g [B, T, HV, K] and beta [B, T, HV] of
    the same dtype or fp32; o like v. HV is a multiple of H, K and V from 16 to 256, T >= 0. Any strides.
    Inputs are not written.

    scale: factor of q, K ** -0.5 if None. initial_state [N, HV, K, V] (or [N, HV, V, K] with state_v_first,
    older name transpose_state_layout), fp32 or bf16; zeros if None. final_state has its layout and dtype
    (fp32 if None) and is None unless output_final_state. cu_seqlens [N + 1], int32 or int64: N sequences
    packed along T, B = 1.

    use_qk_l2norm_in_kernel: q, k <- x / sqrt(sum(x^2) + 1e-6). use_gate_in_kernel: the log decay is
    -exp(A_log) softplus(g + dt_bias), or lower_bound sigmoid(exp(A_log) (g + dt_bias)) if lower_bound is
    given, with A_log [HV] and optional dt_bias [HV * K] or [HV, K] in fp32; otherwise g is the log decay.
    safe_gate asserts that lower_bound is in [-5, 0). use_beta_sigmoid_in_kernel: sigmoid(beta);
    allow_neg_eigval: twice that.

    check_values looks at the contents of cu_seqlens (it waits for the device); without it bad contents never
    reach outside the tensors. Raises ArgumentValueError, ArgumentTypeError, NoVariant, BundleError,
    MissingTorch; on a GPU also CudaError and MissingCuda.
    """
    torch = torch_module()
    flags = read_flags(
        scale=scale, use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, use_gate_in_kernel=use_gate_in_kernel,
        use_beta_sigmoid_in_kernel=use_beta_sigmoid_in_kernel, allow_neg_eigval=allow_neg_eigval,
        safe_gate=safe_gate, lower_bound=lower_bound, state_v_first=state_v_first,
        transpose_state_layout=transpose_state_layout,
    )  # fmt: skip
    call, o, final_state = chunk_call(
        torch, flags, q, k, v, g, beta, A_log=A_log, dt_bias=dt_bias, initial_state=initial_state,
        cu_seqlens=cu_seqlens, output_final_state=output_final_state, check_values=check_values,
    )  # fmt: skip
    _run(call)
    return o, final_state


def fused_recurrent_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    inplace_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    cu_seqlens: Tensor | None = None,
    ssm_state_indices: Tensor | None = None,
    num_accepted_tokens: Tensor | None = None,
    slot_zero_is_real: bool = True,
    state_v_first: bool = False,
    transpose_state_layout: bool | None = None,
    *,
    check_values: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """KDA for decoding, T from 1 to 8 tokens in each of N rows: (o, pool after the call or None).

    Tensors and options as in `chunk_kda`, with N for B. initial_state is the pool of states [SLOTS, HV, K, V]
    (or [SLOTS, HV, V, K] with state_v_first), fp32 or bf16; a fresh pool of N zero states if None. It is
    updated in place with inplace_final_state, else copied first. The pool is returned if output_final_state.

    ssm_state_indices [N] or [N, T], int32 or int64: the slot of each row, or one for each token, into which
    the state after that token goes; without it row n has slot n. A row starts from its first slot, or, with
    num_accepted_tokens [N] and one slot for each token, from slot number num_accepted_tokens - 1. A row whose
    source is negative is skipped: zero output, no state written; so is a row whose source is slot 0 unless
    slot_zero_is_real. A negative slot of a token takes no state.

    cu_seqlens is refused: rows have equal lengths. check_values looks at the contents of the index tensors
    (it waits for the device); without it an index beyond the pool skips its row. Raises as `chunk_kda`.
    """
    torch = torch_module()
    flags = read_flags(
        scale=scale, use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, use_gate_in_kernel=use_gate_in_kernel,
        use_beta_sigmoid_in_kernel=use_beta_sigmoid_in_kernel, allow_neg_eigval=allow_neg_eigval,
        safe_gate=safe_gate, lower_bound=lower_bound, state_v_first=state_v_first,
        transpose_state_layout=transpose_state_layout,
    )  # fmt: skip
    call, o, pool = decode_call(
        torch, flags, q, k, v, g, beta, A_log=A_log, dt_bias=dt_bias, initial_state=initial_state,
        cu_seqlens=cu_seqlens, ssm_state_indices=ssm_state_indices,
        num_accepted_tokens=num_accepted_tokens, inplace_final_state=inplace_final_state,
        slot_zero_is_real=slot_zero_is_real, check_values=check_values,
    )  # fmt: skip
    _run(call)
    return o, pool if output_final_state else None


def _run(call: Call) -> None:
    launch(_shelf.pick(call), call.tensors, call.sizes, call.scalars, call.given)


def _compile(request: CallRequest) -> Path | None:
    """A bundle for the request from the compiler, or None if it is not installed or not to be used."""
    if os.environ.get(COMPILE_VARIABLE) == "0" or not _compiler_installed():
        return None
    from kdsl import driver

    return driver.bundle_for(request, proved=True) if _shelf.proved_only else driver.bundle_for(request)


def _compiler_installed() -> bool:
    return importlib.util.find_spec("tvm") is not None


_shelf = Shelf(_compile)
