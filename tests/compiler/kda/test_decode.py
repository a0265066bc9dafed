"""kda.decode on the CPU kernels of the compiler: pools, tables of slots, speculative tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kdsl.kda import chunk_kda, fused_recurrent_kda
from kdsl.validate import oracle
from kdsl.validate.acceptance import acceptance

from ..workshop import as_numpy

IN_KERNEL = dict.fromkeys(
    ("use_qk_l2norm_in_kernel", "use_gate_in_kernel", "use_beta_sigmoid_in_kernel"), True
)
BOUNDED = {**IN_KERNEL, "lower_bound": -5.0}


@pytest.fixture
def rng():
    return np.random.default_rng(77)


def tensor(rng, *shape, dtype=torch.float32, size=1.0):
    return torch.from_numpy(rng.standard_normal(shape) * size).to(dtype)


def inputs(rng, rows, tokens, heads=1, value_heads=2, width=32, dtype=torch.float32):
    q, k = (tensor(rng, rows, tokens, heads, width, dtype=dtype) for _ in range(2))
    v, g = (tensor(rng, rows, tokens, value_heads, width, dtype=dtype) for _ in range(2))
    beta = tensor(rng, rows, tokens, value_heads, dtype=dtype)
    parameters = {"A_log": tensor(rng, value_heads, size=0.3), "dt_bias": tensor(rng, value_heads, width)}
    return {"q": q, "k": k, "v": v, "g": g, "beta": beta, **parameters}


def pool_of(rng, slots, value_heads=2, width=32, dtype=torch.float32):
    return tensor(rng, slots, value_heads, width, width, dtype=dtype, size=0.3)


def needed(x, pool, **more):
    arrays = {name: t.double().numpy() for name, t in x.items()}
    more = {name: t.numpy() if isinstance(t, torch.Tensor) else t for name, t in more.items()}
    return oracle.decode(
        **arrays, pool=pool.double().numpy(), gate="bounded", lower_bound=-5.0, use_qk_l2norm=True,
        beta_sigmoid=True, **more,
    )  # fmt: skip


def judged(name, x, pool, error_row, slot_zero_is_real=True, **tables):
    """Run in place and compare with the oracle; gives the pool before and after."""
    before = pool.clone()
    o, after = fused_recurrent_kda(
        **x, initial_state=pool, output_final_state=True, inplace_final_state=True, **BOUNDED,
        slot_zero_is_real=slot_zero_is_real, **tables,
    )  # fmt: skip
    assert after is pool
    result = acceptance(
        as_numpy(o), as_numpy(after), *needed(x, before, slot_zero_is_real=slot_zero_is_real, **tables)
    )
    error_row(f"decode {name}", result)
    assert result.accepted, result.explain()
    return before, after


@pytest.mark.parametrize("tokens", [1, 2, 8])
def test_without_a_table_row_n_has_slot_n(tokens, rng, error_row):
    before, after = judged(f"T = {tokens}", inputs(rng, 3, tokens), pool_of(rng, 3), error_row)
    assert not any(torch.equal(*states) for states in zip(after, before, strict=True))


def test_one_slot_a_row(rng, error_row):
    rows = torch.tensor([4, -1, 0, 2])
    before, after = judged("table", inputs(rng, 4, 3), pool_of(rng, 5), error_row, ssm_state_indices=rows)
    assert torch.equal(after[[1, 3]], before[[1, 3]])


@pytest.mark.parametrize("real", [True, False])
def test_slot_zero(real, rng, error_row):
    rows = torch.tensor([0, 3])
    before, after = judged(
        f"slot 0 {'real' if real else 'null'}", inputs(rng, 2, 2), pool_of(rng, 4), error_row,
        slot_zero_is_real=real, ssm_state_indices=rows,
    )  # fmt: skip
    assert torch.equal(after[0], before[0]) == (not real)


def test_speculative_tokens(rng, error_row):
    """Each row starts from the slot of its last accepted token and writes the state after every token."""
    table = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, -1]])
    accepted = torch.tensor([1, 3, 2])
    x, pool = inputs(rng, 3, 4), pool_of(rng, 13)
    before, after = judged(
        "speculative", x, pool, error_row, ssm_state_indices=table, num_accepted_tokens=accepted
    )
    assert torch.equal(after[[0, 12]], before[[0, 12]])
    other = before.clone()
    fused_recurrent_kda(
        **x, initial_state=other, inplace_final_state=True, **BOUNDED, ssm_state_indices=table,
        num_accepted_tokens=torch.tensor([1, 2, 2]),
    )  # fmt: skip
    assert not torch.equal(other[5:9], after[5:9]) and torch.equal(other[1:5], after[1:5])


def test_a_copy_is_made_unless_the_pool_is_to_be_written(rng):
    x, pool = inputs(rng, 2, 2), pool_of(rng, 2)
    before = pool.clone()
    o, after = fused_recurrent_kda(**x, initial_state=pool, output_final_state=True, **BOUNDED)
    assert torch.equal(pool, before) and not torch.equal(after, before)
    again, nothing = fused_recurrent_kda(**x, initial_state=pool, **BOUNDED)
    assert nothing is None and torch.equal(again, o)


def test_narrow_pools_and_both_layouts(rng, error_row):
    x = inputs(rng, 2, 3)
    narrow = pool_of(rng, 2, dtype=torch.bfloat16)
    judged("pool in bf16", x, narrow.clone(), error_row)
    turned = narrow.transpose(-1, -2).contiguous()
    o, after = fused_recurrent_kda(**x, initial_state=narrow.clone(), output_final_state=True, **BOUNDED)
    o_turned, after_turned = fused_recurrent_kda(
        **x, initial_state=turned, output_final_state=True, state_v_first=True, **BOUNDED
    )
    assert torch.equal(o, o_turned) and torch.equal(after_turned.transpose(-1, -2), after)


def test_decoding_token_by_token_is_the_chunk_form(rng):
    x = inputs(rng, 2, 19, dtype=torch.bfloat16)
    whole, state = chunk_kda(**x, output_final_state=True, **BOUNDED)
    pool, parts = torch.zeros(2, 2, 32, 32), []
    for first in range(0, 19, 8):
        part = {n: t if n in ("A_log", "dt_bias") else t[:, first : first + 8] for n, t in x.items()}
        o, _ = fused_recurrent_kda(**part, initial_state=pool, inplace_final_state=True, **BOUNDED)
        parts.append(o)
    result = acceptance(
        as_numpy(torch.cat(parts, 1)), pool.numpy(), as_numpy(whole).astype(np.float64), state.numpy()
    )
    assert result.accepted and result.final_state.rms_ratio < 1e-5


def test_the_oracle_would_see_a_wrong_slot(rng):
    """Negative control."""
    x, pool = inputs(rng, 2, 2), pool_of(rng, 3)
    before = pool.clone()
    o, after = fused_recurrent_kda(
        **x, initial_state=pool, output_final_state=True, **BOUNDED, ssm_state_indices=torch.tensor([0, 2])
    )
    right = needed(x, before, ssm_state_indices=np.array([0, 2]))
    wrong = needed(x, before, ssm_state_indices=np.array([0, 1]))
    assert acceptance(as_numpy(o), as_numpy(after), *right).accepted
    assert not acceptance(as_numpy(o), as_numpy(after), *wrong).accepted
