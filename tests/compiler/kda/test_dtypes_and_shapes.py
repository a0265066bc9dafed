"""Every dtype, mixed dtypes, head dimensions, grouped heads and strides of kda.chunk_forward on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kdsl.driver import NoRule
from kdsl.kda import chunk_kda
from kdsl.validate import oracle
from kdsl.validate.acceptance import acceptance

from ..workshop import TORCH_DTYPES, as_numpy

IN_KERNEL = dict.fromkeys(
    ("use_qk_l2norm_in_kernel", "use_gate_in_kernel", "use_beta_sigmoid_in_kernel"), True
)


def call(seed, batch=1, tokens=50, heads=1, value_heads=2, keys=32, values=32, dtype="bf16", gates="bf16"):
    rng = np.random.default_rng(seed)

    def draw(name, *shape, size=1.0):
        return torch.from_numpy(rng.standard_normal(shape) * size).to(TORCH_DTYPES[name])

    return {
        "q": draw(dtype, batch, tokens, heads, keys), "k": draw(dtype, batch, tokens, heads, keys),
        "v": draw(dtype, batch, tokens, value_heads, values),
        "g": draw(gates, batch, tokens, value_heads, keys), "beta": draw(gates, batch, tokens, value_heads),
        "A_log": draw("f32", value_heads, size=0.3), "dt_bias": draw("f32", value_heads, keys),
        "initial_state": draw("f32", batch, value_heads, keys, values, size=0.3),
    }  # fmt: skip


def needed(x, **more):
    settings = {"gate": "softplus", "use_qk_l2norm": True, "beta_sigmoid": True} | more
    return oracle.chunk_forward(**{name: t.double().numpy() for name, t in x.items()}, **settings)


def check(name, x, error_row, **more):
    o, state = chunk_kda(**x, output_final_state=True, **IN_KERNEL, **more)
    assert o.dtype == x["q"].dtype and o.is_contiguous()
    result = acceptance(as_numpy(o), as_numpy(state), *needed(x))
    error_row(name, result)
    assert result.accepted, result.explain()
    return result


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("gates", ["like q", "f32"])
def test_dtypes(dtype, gates, error_row):
    x = call(1, dtype=dtype, gates=dtype if gates == "like q" else "f32")
    result = check(f"{dtype}, g and beta {x['g'].dtype}".replace("torch.", ""), x, error_row)
    level = {"bf16": 2.5e-3, "f16": 4e-4, "f32": 2e-6}[dtype]
    assert result.o.rms_ratio < level and result.final_state.rms_ratio < 2e-6


def test_a_state_in_bf16(error_row):
    x = call(2)
    x["initial_state"] = x["initial_state"].to(torch.bfloat16)
    _, state = chunk_kda(**x, output_final_state=True, **IN_KERNEL)
    assert state.dtype == torch.bfloat16
    check("state bf16", x, error_row)


@pytest.mark.parametrize(("keys", "values"), [(16, 16), (48, 80), (64, 256), (256, 64)])
def test_head_dimensions(keys, values, error_row):
    check(f"K = {keys}, V = {values}", call(3, keys=keys, values=values), error_row)


def test_head_dimensions_that_no_rule_takes():
    with pytest.raises(NoRule, match="`cpu_split`: K = 40 is not a multiple of 16; pad to 48"):
        chunk_kda(**call(4, keys=40), **IN_KERNEL)


@pytest.mark.parametrize(("heads", "value_heads"), [(1, 1), (2, 6), (3, 3)])
def test_grouped_heads(heads, value_heads, error_row):
    x = call(5, batch=2, heads=heads, value_heads=value_heads)
    check(f"H = {heads}, HV = {value_heads}, B = 2", x, error_row)


@pytest.mark.parametrize("tokens", [0, 1, 15, 16, 17, 64, 127])
def test_any_number_of_tokens(tokens, error_row):
    check("T from 0 to 127", call(6, tokens=tokens), error_row)


def strided(x):
    """The same values with gaps of NaN in memory, the second axis outside the first two."""
    shape = (x.shape[1], x.shape[0], *x.shape[2:-1], 2 * x.shape[-1])
    return torch.full(shape, float("nan"), dtype=x.dtype).transpose(0, 1)[..., ::2].copy_(x)


def test_strides(error_row):
    x = call(7, batch=2)
    gapped = {name: t if name in ("A_log", "dt_bias") else strided(t) for name, t in x.items()}
    assert sum(t.is_contiguous() for t in gapped.values()) == 2
    plain = chunk_kda(**x, output_final_state=True, **IN_KERNEL)
    found = chunk_kda(**gapped, output_final_state=True, **IN_KERNEL)
    assert torch.equal(plain[0], found[0]) and torch.equal(plain[1], found[1])
    check("strided", gapped, error_row)


def test_the_scale_and_no_options(error_row):
    """Everything outside the kernel: no norm, decay given, beta ready made, another scale."""
    x = call(8, dtype="f32", gates="f32")
    x = {name: x[name] for name in ("q", "k", "v", "g", "beta", "initial_state")}
    x["q"], x["k"] = x["q"] / 6, x["k"] / 6
    x["g"], x["beta"] = -x["g"].abs(), x["beta"].sigmoid()
    o, state = chunk_kda(**x, scale=0.5, output_final_state=True)
    plain = {"gate": "precomputed", "use_qk_l2norm": False, "beta_sigmoid": False}
    result = acceptance(as_numpy(o), as_numpy(state), *needed(x, scale=0.5, **plain))
    error_row("precomputed, scale 0.5", result)
    assert result.accepted, result.explain()
    assert not acceptance(as_numpy(o), as_numpy(state), *needed(x, **plain)).accepted


def test_gradients_are_refused():
    x = call(9)
    x["v"].requires_grad_()
    with pytest.raises((TypeError, ValueError), match="v: "):
        chunk_kda(**x, **IN_KERNEL)
