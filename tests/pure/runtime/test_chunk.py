"""chunk_kda end to end on a plain C kernel, against a float64 recurrence."""

import math

import numpy as np
import pytest
import torch

from kdsl.kda import chunk_kda
from kdsl.runtime.chunk import _cu_seqlens as boundaries

pytestmark = pytest.mark.usefixtures("gcc", "compiler")
H, HV, D = 2, 4, 32
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def draw(batch=1, length=20, heads=H, value_heads=HV, key=D, value=D, dtype=torch.float32, seed=0, n=None):
    """Inputs of a call with a precomputed gate, and an initial state for n sequences."""
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=rng)

    unit = {name: torch.nn.functional.normalize(normal(batch, length, heads, key), dim=-1) for name in "qk"}
    return {
        "q": unit["q"].to(dtype),
        "k": unit["k"].to(dtype),
        "v": normal(batch, length, value_heads, value).to(dtype),
        "g": (-torch.rand((batch, length, value_heads, key), generator=rng)).to(dtype),
        "beta": torch.rand((batch, length, value_heads), generator=rng).to(dtype),
        "initial_state": normal(batch if n is None else n, value_heads, key, value),
    }


def as_float64(tensor):
    return tensor.detach().to(torch.float64).numpy()


def check(o, expected, bound=1e-5):
    o = as_float64(o)
    assert o.shape == expected.shape
    assert np.isfinite(o).all()
    if expected.size:
        assert np.abs(o - expected).max() <= bound * max(1.0, np.abs(expected).max())


def check_call(reference, x, cuts=None, bound=1e-5, **options):
    """Run chunk_kda on `x` and compare every sequence with the recurrence; return (o, final_state)."""
    o, final = chunk_kda(**x, output_final_state=True, **options)
    spans = [(row, 0, x["q"].shape[1]) for row in range(x["q"].shape[0])]
    if cuts is not None:
        spans = [(0, begin, end) for begin, end in zip(cuts, cuts[1:], strict=False)]
    for n, (row, begin, end) in enumerate(spans):
        part = [as_float64(x[name][row, begin:end]) for name in ("q", "k", "v", "g", "beta")]
        start = None if x.get("initial_state") is None else as_float64(x["initial_state"][n])
        expected_o, expected_state = reference(*part, start, options.get("scale"))
        check(o[row, begin:end], expected_o, bound)
        check(final[n], expected_state, bound)
    return o, final


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("with_state", [False, True])
def test_a_call_equals_the_recurrence(reference, batch, with_state):
    x = draw(batch, value=48)
    if not with_state:
        del x["initial_state"]
    check_call(reference, x)


def test_the_comparison_sees_a_wrong_input(reference):
    x = draw()
    o, _ = check_call(reference, x)
    x["beta"] = x["beta"] * 1.01
    with pytest.raises(AssertionError):
        part = [as_float64(x[name][0]) for name in ("q", "k", "v", "g", "beta")]
        check(o[0], reference(*part, as_float64(x["initial_state"][0]))[0])


def test_k08_one_call_or_four_that_pass_the_state_on():
    x = draw(length=256)
    whole, final = chunk_kda(**x, output_final_state=True)
    state, outputs = x["initial_state"], []
    for begin in range(0, 256, 64):
        part = {name: x[name][:, begin : begin + 64] for name in ("q", "k", "v", "g", "beta")}
        o, state = chunk_kda(**part, initial_state=state, output_final_state=True)
        outputs.append(o)
    assert torch.equal(torch.cat(outputs, 1), whole) and torch.equal(state, final)
    assert not torch.equal(outputs[3], chunk_kda(**part)[0])


@pytest.mark.parametrize("name", ["bf16", "f16"])
@pytest.mark.parametrize("gate_dtype", ["same", "f32"])
def test_sixteen_bit_inputs(reference, name, gate_dtype):
    x = draw(dtype=DTYPES[name])
    if gate_dtype == "f32":
        x["g"], x["beta"] = x["g"].float(), x["beta"].float()
    o, final = check_call(reference, x, bound=1e-2)
    assert o.dtype == DTYPES[name] and final.dtype == torch.float32


def test_scale(reference):
    x = draw()
    o, _ = check_call(reference, x, scale=0.5)
    default, _ = chunk_kda(**x)
    assert torch.equal(default, chunk_kda(**x, scale=D**-0.5)[0])
    assert not torch.equal(o, default)


def test_the_final_state_only_on_request():
    x = draw()
    assert chunk_kda(**x)[1] is None
    assert chunk_kda(**x, output_final_state=True)[1].shape == (1, HV, D, D)


def test_a_bf16_state_in_gives_a_bf16_state_out(reference):
    x = draw()
    x["initial_state"] = x["initial_state"].bfloat16()
    _, final = check_call(reference, x, bound=1e-2)
    assert final.dtype == torch.bfloat16


def test_normalised_queries_and_keys(reference):
    x = draw()
    for name in "qk":
        x[name] = x[name] * 3.0
    o, final = chunk_kda(**x, use_qk_l2norm_in_kernel=True, output_final_state=True)
    part = {name: as_float64(x[name][0]) for name in ("q", "k", "v", "g", "beta")}
    for name in "qk":
        part[name] = part[name] / np.sqrt((part[name] ** 2).sum(-1, keepdims=True) + 1e-6)
    expected = reference(**part, initial=as_float64(x["initial_state"][0]))
    check(o[0], expected[0])
    check(final[0], expected[1])


def activated(x, A_log, bias, lower_bound):
    raw = as_float64(x["g"]) + (0 if bias is None else as_float64(bias).reshape(HV, D))
    rate = np.exp(as_float64(A_log))[:, None]
    if lower_bound is None:
        return -rate * np.logaddexp(0, raw)
    return lower_bound / (1 + np.exp(-rate * raw))


@pytest.mark.parametrize("lower_bound", [None, -5.0, -1.5])
@pytest.mark.parametrize("bias", [None, (HV * D,), (HV, D)])
def test_gates_in_the_kernel(reference, lower_bound, bias):
    x = draw()
    x["g"] = torch.randn(x["g"].shape, generator=torch.Generator().manual_seed(3))
    A_log = torch.linspace(-1.0, 1.0, HV)
    dt_bias = None if bias is None else torch.linspace(-1.0, 1.0, HV * D).reshape(bias)
    o, final = chunk_kda(
        **x, use_gate_in_kernel=True, A_log=A_log, dt_bias=dt_bias, lower_bound=lower_bound,
        output_final_state=True, safe_gate=lower_bound is not None,
    )  # fmt: skip
    part = {name: as_float64(x[name][0]) for name in ("q", "k", "v", "beta")}
    expected = reference(
        **part, g=activated(x, A_log, dt_bias, lower_bound)[0], initial=as_float64(x["initial_state"][0])
    )
    check(o[0], expected[0])
    check(final[0], expected[1])


def test_k01_only_empty_sequences_keep_their_state():
    x = draw(length=0, n=2)
    o, final = chunk_kda(**x, cu_seqlens=torch.tensor([0, 0, 0]), output_final_state=True)
    assert torch.equal(final, x["initial_state"])
    assert o.shape == (1, 0, HV, D)
    o, final = chunk_kda(
        **{**x, "initial_state": None}, cu_seqlens=torch.tensor([0, 0, 0]), output_final_state=True
    )
    assert torch.equal(final, torch.zeros(2, HV, D, D))


def test_k02_an_empty_sequence_between_others(reference):
    x = draw(length=128, n=3)
    cuts = [0, 64, 64, 128]
    _, final = check_call(reference, x, cuts, cu_seqlens=torch.tensor(cuts))
    assert torch.equal(final[1], x["initial_state"][1])
    assert not torch.equal(final[0], x["initial_state"][0])


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_no_tokens_or_no_rows(batch):
    x = draw(batch, length=0)
    o, final = chunk_kda(**x, output_final_state=True)
    assert torch.equal(final, x["initial_state"]) and o.shape == (batch, 0, HV, D)
    x = draw(batch, length=5)
    o, final = chunk_kda(**x, output_final_state=True)
    assert o.shape == (batch, 5, HV, D) and final.shape == (batch, HV, D, D)
    assert torch.isfinite(o).all()


def test_no_sequences_in_a_packed_call():
    x = draw(length=0, n=0)
    o, final = chunk_kda(**x, cu_seqlens=torch.tensor([0]), output_final_state=True)
    assert o.shape == (1, 0, HV, D) and final.shape == (0, HV, D, D)


@pytest.mark.parametrize("value", [D, 48])
def test_k06_both_state_layouts(reference, value):
    x = draw(length=130, value=value)
    o, final = check_call(reference, x)
    swapped = {**x, "initial_state": x["initial_state"].transpose(-1, -2).contiguous()}
    for name in ("state_v_first", "transpose_state_layout"):
        o_swapped, final_swapped = chunk_kda(**swapped, **{name: True}, output_final_state=True)
        assert final_swapped.shape == (1, HV, value, D) and final_swapped.is_contiguous()
        assert torch.equal(o_swapped, o)
        assert torch.equal(final_swapped.transpose(-1, -2), final)
    assert torch.equal(chunk_kda(**x, transpose_state_layout=False)[0], o)
    if value == D:
        assert not torch.equal(chunk_kda(**x, state_v_first=True)[0], o)


def test_k07_no_initial_state_in_memory_full_of_nan(monkeypatch):
    x = draw(length=1)
    zero = {**x, "initial_state": torch.zeros_like(x["initial_state"])}
    none = {**x, "initial_state": None}
    poisoned = chunk_kda(**none, output_final_state=True)
    expected = chunk_kda(**zero, output_final_state=True)
    monkeypatch.delenv("KDSL_POISON")
    clean = chunk_kda(**none, output_final_state=True)
    for got, other, want in zip(poisoned, clean, expected, strict=True):
        assert torch.isfinite(got).all() and torch.equal(got, want) and torch.equal(other, want)


def test_k13_strided_inputs_are_read_by_their_strides(reference):
    x = draw(batch=2, length=7)
    o, final = chunk_kda(**x, output_final_state=True)
    beta = torch.full((2, 7, 2 * HV), torch.nan)
    beta[..., ::2] = x["beta"]
    parts = torch.full((2, 7, HV, 3 * D), torch.nan)
    parts[..., D : 2 * D] = x["v"]
    state = torch.full((HV, 2, D, 2 * D), torch.nan)
    state[..., ::2] = x["initial_state"].transpose(0, 1)
    strided = {
        "q": x["q"].permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
        "k": x["k"].transpose(1, 2).contiguous().transpose(1, 2),
        "v": parts[..., D : 2 * D],
        "g": x["g"].transpose(0, 1).contiguous().transpose(0, 1),
        "beta": beta[..., ::2],
        "initial_state": state[..., ::2].transpose(0, 1),
    }
    assert not any(tensor.is_contiguous() for tensor in strided.values())
    o_strided, final_strided = chunk_kda(**strided, output_final_state=True)
    assert torch.equal(o_strided, o) and torch.equal(final_strided, final)
    expanded = x["beta"][:, :, :1].expand(-1, -1, HV)
    assert torch.equal(
        chunk_kda(**{**x, "beta": expanded})[0], chunk_kda(**{**x, "beta": expanded.contiguous()})[0]
    )


def test_k13_strided_gate_parameters():
    x = draw()
    wide_A, wide_bias = torch.randn(2 * HV), torch.randn(2 * HV * D)
    options = {"use_gate_in_kernel": True, "lower_bound": -5.0}
    strided = chunk_kda(**x, **options, A_log=wide_A[::2], dt_bias=wide_bias[::2])[0]
    plain = chunk_kda(**x, **options, A_log=wide_A[::2].clone(), dt_bias=wide_bias[::2].clone())[0]
    wrong = chunk_kda(**x, **options, A_log=wide_A[:HV], dt_bias=wide_bias[: HV * D])[0]
    assert torch.equal(strided, plain) and not torch.equal(strided, wrong)


def test_k15_inputs_are_not_written():
    x = draw(length=20, n=2)
    x |= {"A_log": torch.randn(HV), "dt_bias": torch.randn(HV * D), "cu_seqlens": torch.tensor([0, 5, 20])}
    before = {name: tensor.clone() for name, tensor in x.items()}
    chunk_kda(
        **x, use_gate_in_kernel=True, use_qk_l2norm_in_kernel=True, use_beta_sigmoid_in_kernel=True,
        output_final_state=True,
    )  # fmt: skip
    for name, tensor in x.items():
        assert tensor.numpy().tobytes() == before[name].numpy().tobytes(), name


def test_k17_negative_eigenvalues(reference):
    x = draw()
    logits = torch.randn(x["beta"].shape, generator=torch.Generator().manual_seed(5))
    doubled = {**x, "beta": 2 * torch.sigmoid(logits)}
    o, final = check_call(reference, doubled)
    flags = {"use_beta_sigmoid_in_kernel": True, "allow_neg_eigval": True}
    in_kernel = chunk_kda(**{**x, "beta": logits}, **flags, output_final_state=True)
    check(in_kernel[0], as_float64(o))
    check(in_kernel[1], as_float64(final))
    plain = chunk_kda(**{**x, "beta": logits}, use_beta_sigmoid_in_kernel=True)[0]
    assert not torch.allclose(plain, o)
    with pytest.raises(ValueError, match="allow_neg_eigval.*use_beta_sigmoid_in_kernel"):
        chunk_kda(**doubled, allow_neg_eigval=True)


def test_k18_packed_equals_each_alone(reference):
    lengths = [17, 37, 1, 0, 15, 31, 63]
    cuts = [0, *np.cumsum(lengths).tolist()]
    x = draw(length=cuts[-1], n=len(lengths))
    o, final = check_call(reference, x, cuts, cu_seqlens=torch.tensor(cuts))
    for n, (begin, end) in enumerate(zip(cuts, cuts[1:], strict=False)):
        alone = {name: x[name][:, begin:end] for name in ("q", "k", "v", "g", "beta")}
        o_alone, final_alone = chunk_kda(
            **alone, initial_state=x["initial_state"][n : n + 1], output_final_state=True
        )
        assert torch.equal(o_alone, o[:, begin:end]) and torch.equal(final_alone[0], final[n])


def test_k19_both_integer_dtypes_of_cu_seqlens():
    x = draw(length=20, n=2)
    cuts = torch.tensor([0, 9, 20])
    results = [
        chunk_kda(**x, cu_seqlens=boundaries, output_final_state=True)
        for boundaries in (
            cuts,
            cuts.int(),
            torch.tensor([0, 5, 9, 5, 20])[::2],
            cuts.repeat_interleave(2)[::2],
        )
    ]
    for same in (1, 3):
        assert all(torch.equal(a, b) for a, b in zip(results[0], results[same], strict=True))
    other = chunk_kda(**x, cu_seqlens=torch.tensor([0, 8, 20]), output_final_state=True)
    assert not torch.equal(results[0][0], other[0])


def test_boundaries_refilled_in_place_are_read_again():
    x, cuts = draw(length=20, n=2), torch.tensor([0, 9, 20])
    first = chunk_kda(**x, cu_seqlens=cuts)[0]
    cuts[1] = 4
    second = chunk_kda(**x, cu_seqlens=cuts)[0]
    assert not torch.equal(first, second)
    assert torch.equal(second, chunk_kda(**x, cu_seqlens=torch.tensor([0, 4, 20]))[0])


@pytest.mark.parametrize("cuts", [[0, 50, 20], [3, 9, 12], [-4, 9, 20], [0, 30, 10], [2**40, -(2**40), 7]])
def test_bad_boundaries_stay_inside_the_tensors(cuts):
    x = draw(length=20, n=2)
    with pytest.raises(ValueError, match="cu_seqlens"):
        chunk_kda(**x, cu_seqlens=torch.tensor(cuts), check_values=True)
    o, final = chunk_kda(**x, cu_seqlens=torch.tensor(cuts), output_final_state=True)
    assert torch.isfinite(o).all() and torch.isfinite(final).all()


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ([0, 7, 7, 20], [0, 7, 7, 20]),
        ([0, 15, 5, 20], [0, 15, 15, 20]),
        ([3, 15, 16, 18], [0, 15, 16, 20]),
        ([-(2**60), 2**60, 4, 20], [0, 20, 20, 20]),
        ([9], [0]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_kernels_see_boundaries_that_are_in_order(given, used, dtype):
    if dtype is torch.int32:
        given = [max(-(2**31), min(2**31 - 1, value)) for value in given]
    sizes = {"B": 1, "T": used[-1]}
    seen = boundaries(torch, torch.tensor(given, dtype=dtype), sizes, False)
    assert seen.tolist() == used and seen.dtype == torch.int64 and seen.is_contiguous()


def test_good_boundaries_pass_the_check():
    x = draw(length=20, n=3)
    cuts = torch.tensor([0, 0, 7, 20])
    assert torch.equal(
        chunk_kda(**x, cu_seqlens=cuts, check_values=True)[0], chunk_kda(**x, cu_seqlens=cuts)[0]
    )


def test_one_and_many_threads_are_bitwise_equal(monkeypatch):
    x = draw(batch=3, length=33)
    results = []
    for threads in ("1", "2", "7", "64"):
        monkeypatch.setenv("KDSL_THREADS", threads)
        results.append(chunk_kda(**x, output_final_state=True))
    for o, final in results[1:]:
        assert torch.equal(o, results[0][0]) and torch.equal(final, results[0][1])
    monkeypatch.setenv("KDSL_THREADS", "none")
    with pytest.raises(ValueError, match="KDSL_THREADS: found 'none'; needed an integer of 1 or more"):
        chunk_kda(**x)


def test_without_gradients_a_parameter_is_fine():
    x = draw()
    parameter = torch.nn.Parameter(torch.zeros(HV))
    options = {"use_gate_in_kernel": True, "lower_bound": -5.0}
    with pytest.raises(ValueError, match="A_log: found a tensor that requires grad.*no_grad"):
        chunk_kda(**x, **options, A_log=parameter)
    with torch.no_grad():
        o, _ = chunk_kda(**x, **options, A_log=parameter)
    assert torch.equal(o, chunk_kda(**x, **options, A_log=parameter.detach())[0]) and not o.requires_grad
    assert math.isfinite(o.abs().max())
