"""Inputs that broke other kernels (K01 to K20), through `kdsl.kda` and the CPU kernels of the compiler.

Unless a case is about something else: bfloat16, two heads, K = V = 128, norm, gate and sigmoid in the kernel.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kdsl.contract.select import select
from kdsl.kda import chunk_kda, fused_recurrent_kda
from kdsl.runtime.errors import ArgumentTypeError, ArgumentValueError
from kdsl.runtime.request import CallRequest
from kdsl.validate import oracle
from kdsl.validate.acceptance import acceptance
from kdsl.validate.bfloat16 import encode
from kdsl.validate.call import NEEDED, copy_of, digest, reference
from kdsl.validate.probes import random_call

from ..forms import form_rule
from ..workshop import as_torch, library_of, run_call, verdict

SIZES = (1, 96, 2, 128)


@pytest.fixture
def rng():
    return np.random.default_rng(2026)


def precomputed(call, log_decay):
    """The call with its log decay given in float32 instead of computed in the kernel."""
    gone = dict.fromkeys(("use_gate_in_kernel", "safe_gate", "A_log", "dt_bias", "lower_bound"))
    return copy_of(call, g=np.full(call["g"].shape, log_decay, np.float32), **gone)


def tensors(call, *names):
    return {name: as_torch(call[name]) for name in names or NEEDED}


def accepted(name, call, error_row, **limits):
    result = verdict(call, **limits)
    error_row(name, result)
    assert result.accepted, result.explain()


def test_k01_only_empty_sequences(rng):
    call = random_call(rng, 0, lengths=(0, 0))
    o, state = run_call(call)
    assert o.shape == (1, 0, 2, 128)
    assert state.tobytes() == call["initial_state"].tobytes()


def test_k02_an_empty_sequence_between_two(rng, error_row):
    call = random_call(rng, 128, lengths=(64, 0, 64))
    accepted("K02", call, error_row)
    assert run_call(call)[1][1].tobytes() == call["initial_state"][1].tobytes()


def test_k03_the_largest_published_rate(rng, error_row):
    rate = np.full(2, np.log(201), np.float32)
    call = random_call(rng, 64, A_log=rate, g=rng.standard_normal((1, 64, 2, 128)))
    accepted("K03", copy_of(call, lower_bound=None, safe_gate=False), error_row)


def test_k04_a_rule_for_bounded_gates_refuses_others(rng, tmp_path, error_row):
    name, text = form_rule("factored", "split", kernels=1)
    library = library_of(tmp_path, text)
    sizes = {"B": 1, "T": 96, "H": 2, "HV": 2, "N": 1, "K": 128, "V": 128}
    dtypes, given = {"q": "bf16", "g": "f32"}, {"cu_seqlens": False}
    found = select(library, "cpu", "kda.chunk_forward", sizes, dtypes, {"gate": "precomputed"}, given)
    assert found.chosen is None
    reason = next(str(r) for r in found.refusals if r.rule == name)
    assert "gate" in reason and "bounded" in reason
    bounded = {"gate": "bounded", "lower_bound": -5.0}
    found = select(library, "cpu", "kda.chunk_forward", sizes, {"q": "bf16"}, bounded, given)
    assert found.chosen is not None
    accepted("K04", precomputed(random_call(rng, 96), -50.0), error_row)  # the shipped rule takes any gate


def test_k05_keys_in_a_common_direction(rng, error_row):
    shape = (1, 256, 2, 128)
    keys = rng.standard_normal((1, 1, 2, 128)) + 0.01 * rng.standard_normal(shape)
    state = rng.normal(0, 0.25, (1, 2, 128, 128)).astype(np.float32)
    call = random_call(rng, 256, k=keys, v=0.5 * rng.standard_normal(shape), initial_state=state)
    beta = np.full(shape[:3], 0.99, np.float32)
    call = copy_of(precomputed(call, -1e-3), beta=beta, use_beta_sigmoid_in_kernel=False)
    accepted("K05", call, error_row, state_rms_limit=0.02)


def test_k06_both_layouts_of_the_state(rng, error_row):
    call = random_call(rng, 130)
    state = call["initial_state"]
    assert not np.array_equal(state, state.swapaxes(-1, -2))
    accepted("K06", call, error_row)
    turned = copy_of(call, initial_state=state.swapaxes(-1, -2).copy(), state_v_first=True)
    accepted("K06", turned, error_row)
    (o, k_first), (o_turned, v_first) = run_call(call), run_call(turned)
    assert o.tobytes() == o_turned.tobytes()
    assert np.ascontiguousarray(v_first.swapaxes(-1, -2)).tobytes() == k_first.tobytes()
    older = copy_of(turned, state_v_first=None, transpose_state_layout=True)
    assert run_call(older)[1].tobytes() == v_first.tobytes()
    with pytest.raises(ValueError, match="transpose_state_layout"):
        run_call(turned | {"transpose_state_layout": True})


def test_k07_no_initial_state_and_one_token(rng, error_row):
    call = random_call(rng, 1, with_state=False)
    accepted("K07", call, error_row)  # the state's memory is full of NaN: see `plain_environment`
    zeros = np.zeros((1, 2, 128, 128), np.float32)
    given, none = run_call(copy_of(call, initial_state=zeros)), run_call(call)
    assert all(x.tobytes() == y.tobytes() for x, y in zip(given, none, strict=True))


def test_k08_four_calls_that_hand_the_state_on(rng, error_row):
    call = random_call(rng, 256)
    accepted("K08", call, error_row)
    o, state = run_call(call)
    carried, pieces = call["initial_state"], []
    for first in range(0, 256, 64):
        part = {key: np.ascontiguousarray(call[key][:, first : first + 64]) for key in NEEDED}
        piece, carried = run_call(call | part | {"initial_state": carried})
        pieces.append(piece)
    assert np.concatenate(pieces, axis=1).tobytes() == o.tobytes() and carried.tobytes() == state.tobytes()


def decode_call(rng, rows, slots, heads=2, width=128):
    """A decode call of one token a row, with a pool of states."""
    shape = (rows, 1, heads, width)
    inputs = {name: torch.randn(shape, generator=torch.Generator().manual_seed(i)) for i, name in
              enumerate(("q", "k", "v", "g"))}  # fmt: skip
    inputs = {name: x.to(torch.bfloat16) for name, x in inputs.items()}
    inputs["beta"] = as_torch(encode(rng.standard_normal(shape[:3])))
    inputs["A_log"] = torch.from_numpy(rng.uniform(-0.3, 0.3, heads).astype(np.float32))
    inputs["dt_bias"] = torch.from_numpy(rng.normal(0, 0.3, (heads, width)).astype(np.float32))
    pool = torch.from_numpy(rng.normal(0, 0.3, (slots, heads, width, width)).astype(np.float32))
    switches = ("use_qk_l2norm_in_kernel", "use_gate_in_kernel", "use_beta_sigmoid_in_kernel")
    return inputs, pool, dict.fromkeys(switches, True) | {"lower_bound": -5.0}


def decode(inputs, pool, flags, **more):
    return fused_recurrent_kda(
        **inputs, initial_state=pool, output_final_state=True, inplace_final_state=True, **flags, **more
    )


def decode_reference(inputs, pool, **more):
    arrays = {name: x.double().numpy() for name, x in inputs.items()}
    return oracle.decode(
        **arrays, pool=pool.double().numpy(), gate="bounded", lower_bound=-5.0, use_qk_l2norm=True,
        beta_sigmoid=True, **more,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "slots", "indices", "untouched"), [
    ("K09", 3, (2, -1), (0, 1)),
    ("K10", 5, (-1, 3), (0, 1, 2, 4)),
])  # fmt: skip
def test_k09_k10_rows_without_a_slot(name, slots, indices, untouched, rng, error_row):
    inputs, pool, flags = decode_call(rng, 2, slots)
    before, rows = pool.clone(), torch.tensor(indices)
    o, after = decode(inputs, pool, flags, ssm_state_indices=rows)
    needed = decode_reference(inputs, before, ssm_state_indices=rows.numpy())
    assert after is pool and not o[indices.index(-1)].any()
    for slot in untouched:
        assert torch.equal(after[slot], before[slot])
    live = max(indices)
    assert not torch.equal(after[live], before[live])
    result = acceptance(o.float().numpy(), after.numpy(), *needed)
    error_row(name, result)
    assert result.accepted, result.explain()


def test_k11_two_thousand_rows_of_thirty_two_heads(rng, error_row):
    """65,536 tasks; K = V = 32 here, so that the pool has 268 MB instead of 4.3 GB."""
    inputs, pool, flags = decode_call(rng, 2048, 2048, heads=32, width=32)
    shown = [0, 1, 1023, 2046, 2047]  # the oracle takes these alone: every row is its own
    before = pool[shown].clone()
    o, after = decode(inputs, pool, flags)
    some = {n: x if n in ("A_log", "dt_bias") else x[shown] for n, x in inputs.items()}
    result = acceptance(o[shown].float().numpy(), after[shown].numpy(), *decode_reference(some, before))
    error_row("K11", result)
    assert result.accepted, result.explain()
    assert torch.isfinite(o).all() and torch.isfinite(after).all()


def test_k12_g_of_the_wrong_rank(rng):
    call = random_call(rng, 8)
    needed = r"\[B, T, HV, K\].*\[1, 8, 2, 128\]"
    with pytest.raises(ArgumentValueError, match=rf"g: found shape \[1, 8, 2\].*{needed}"):
        run_call(call | {"g": call["beta"]})


def test_k13_beta_with_strides(rng):
    call = random_call(rng, 96)
    projection = torch.zeros(1, 96, 4, dtype=torch.bfloat16)
    projection[..., ::2] = as_torch(call["beta"])
    options = {n: x for n, x in call.items() if n not in NEEDED and not isinstance(x, np.ndarray)}
    parameters = tensors(call, "A_log", "dt_bias", "initial_state")
    strided = tensors(call) | {"beta": projection[..., ::2]}
    assert not strided["beta"].is_contiguous()
    o, state = chunk_kda(**strided, **parameters, **options)
    plain_o, plain_state = chunk_kda(**tensors(call), **parameters, **options)
    assert torch.equal(o, plain_o) and torch.equal(state, plain_state)


def test_k14_a_bias_one_element_short(rng):
    call = random_call(rng, 8)
    with pytest.raises(ArgumentValueError, match="dt_bias: found shape .*255"):
        run_call(call | {"dt_bias": call["dt_bias"].reshape(-1)[:-1].copy()})


def test_k15_inputs_stay_as_they_are(rng):
    call = random_call(rng, 90, lengths=(33, 57))
    before = digest(call)
    run_call(call)
    assert digest(call) == before


def test_k16_fast_decay_over_sixteen_rows(rng, error_row):
    accepted("K16", precomputed(random_call(rng, 96), -10.0), error_row)


def test_k17_negative_eigenvalues(rng, error_row):
    call = random_call(rng, 96) | {"allow_neg_eigval": True}
    accepted("K17", call, error_row)
    o, state = run_call(call | {"allow_neg_eigval": False})
    assert not acceptance(o, state, *reference(call)).accepted
    with pytest.raises(ValueError, match="allow_neg_eigval"):
        run_call(call | {"use_beta_sigmoid_in_kernel": False})


def test_k18_k19_many_lengths_in_both_index_types(rng, error_row):
    lengths = (17, 37, 97, 15, 31, 63, 500)
    call = random_call(rng, sum(lengths), lengths=lengths)
    accepted("K18", call, error_row)
    o, state = run_call(call)
    for n, (start, stop) in enumerate(zip(call["cu_seqlens"], call["cu_seqlens"][1:], strict=False)):
        part = {key: np.ascontiguousarray(call[key][:, start:stop]) for key in NEEDED}
        alone = copy_of(call, **part, initial_state=call["initial_state"][n : n + 1], cu_seqlens=None)
        own_o, own_state = run_call(alone)
        assert np.array_equal(own_o, o[:, start:stop]) and np.array_equal(own_state, state[n : n + 1])
    narrow = run_call(call | {"cu_seqlens": call["cu_seqlens"].astype(np.int32)})
    assert narrow[0].tobytes() == o.tobytes() and narrow[1].tobytes() == state.tobytes()


def test_k20_two_dtypes_of_one_state(rng):
    dtypes = {"q": "bf16", "initial_state": "f32", "final_state": "bf16"}
    with pytest.raises(ArgumentTypeError, match="final_state as bf16 with initial_state as f32"):
        CallRequest("kda.chunk_forward", "cpu", dtypes, {}, {}, {})
    call = random_call(rng, 16)
    states = {"initial_state": as_torch(call["initial_state"]).to(torch.bfloat16)}
    options = {n: x for n, x in call.items() if n not in NEEDED and not isinstance(x, np.ndarray)}
    _, state = chunk_kda(**tensors(call), **tensors(call, "A_log", "dt_bias"), **states, **options)
    assert state.dtype == torch.bfloat16  # the state comes back as it was given
