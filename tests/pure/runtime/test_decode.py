"""fused_recurrent_kda end to end on a plain C kernel, against a float64 recurrence."""

import numpy as np
import pytest
import torch

from kdsl.kda import chunk_kda, fused_recurrent_kda

pytestmark = pytest.mark.usefixtures("gcc", "compiler")
H, HV, D = 2, 4, 32


def draw(rows=2, length=1, slots=None, heads=H, value_heads=HV, key=D, value=D, seed=0):
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=rng)

    unit = {name: torch.nn.functional.normalize(normal(rows, length, heads, key), dim=-1) for name in "qk"}
    return {
        **unit,
        "v": normal(rows, length, value_heads, value),
        "g": -torch.rand((rows, length, value_heads, key), generator=rng),
        "beta": torch.rand((rows, length, value_heads), generator=rng),
        "initial_state": normal(rows if slots is None else slots, value_heads, key, value),
    }


def expected_row(reference, x, row, source):
    part = [x[name][row].double().numpy() for name in ("q", "k", "v", "g", "beta")]
    return reference(*part, source.double().numpy())


def close(tensor, expected):
    expected = np.asarray(expected)
    return np.abs(tensor.double().numpy() - expected).max() <= 1e-5 * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("length", [1, 2, 8])
def test_rows_equal_the_recurrence(reference, length):
    x = draw(3, length, value=48)
    o, pool = fused_recurrent_kda(**x, output_final_state=True)
    for row in range(3):
        expected = expected_row(reference, x, row, x["initial_state"][row])
        assert close(o[row], expected[0]) and close(pool[row], expected[1])
        assert not close(o[row], expected[0] * 1.01)


def test_decoding_continues_a_chunked_call():
    rng = torch.Generator().manual_seed(1)
    x = draw(1, 8)
    whole, final = chunk_kda(**x, output_final_state=True)
    pool, outputs = x["initial_state"].clone(), []
    for begin, end in ((0, 1), (1, 4), (4, 8)):
        part = {name: x[name][:, begin:end] for name in ("q", "k", "v", "g", "beta")}
        outputs.append(fused_recurrent_kda(**part, initial_state=pool, inplace_final_state=True)[0])
    assert torch.equal(torch.cat(outputs, 1), whole) and torch.equal(pool, final)
    assert not torch.equal(pool, torch.randn(pool.shape, generator=rng))


def test_a_copy_is_updated_unless_in_place_is_asked_for():
    x = draw()
    before = x["initial_state"].clone()
    o, pool = fused_recurrent_kda(**x, output_final_state=True)
    assert torch.equal(x["initial_state"], before) and pool is not x["initial_state"]
    assert fused_recurrent_kda(**x)[1] is None
    assert torch.equal(x["initial_state"], before)
    o_in_place, same = fused_recurrent_kda(**x, inplace_final_state=True, output_final_state=True)
    assert same is x["initial_state"] and torch.equal(same, pool) and torch.equal(o_in_place, o)


def test_no_pool_starts_from_zero_states():
    x = draw()
    zero = fused_recurrent_kda(**{**x, "initial_state": torch.zeros(2, HV, D, D)}, output_final_state=True)
    none = fused_recurrent_kda(**{**x, "initial_state": None}, output_final_state=True)
    assert torch.equal(none[0], zero[0]) and torch.equal(none[1], zero[1])
    for options in ({"inplace_final_state": True}, {"ssm_state_indices": torch.tensor([0, 1])}):
        with pytest.raises(ValueError, match="initial_state: found None with"):
            fused_recurrent_kda(**{**x, "initial_state": None}, **options)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_k09_a_negative_index_skips_the_row(reference, dtype):
    x = draw(2, slots=3)
    before = x["initial_state"].clone()
    indices = torch.tensor([2, -1], dtype=dtype)
    o, _ = fused_recurrent_kda(**x, ssm_state_indices=indices, inplace_final_state=True)
    assert torch.equal(o[1], torch.zeros_like(o[1])) and o[0].abs().min() > 0
    assert torch.equal(x["initial_state"][:2], before[:2])
    expected = expected_row(reference, x, 0, before[2])
    assert close(o[0], expected[0]) and close(x["initial_state"][2], expected[1])


def test_k10_only_the_named_slot_changes():
    x = draw(2, slots=5)
    before = x["initial_state"].clone()
    fused_recurrent_kda(**x, ssm_state_indices=torch.tensor([-1, 3]), inplace_final_state=True)
    changed = [slot for slot in range(5) if not torch.equal(x["initial_state"][slot], before[slot])]
    assert changed == [3]


def test_k11_many_rows(reference):
    x = draw(2048, heads=32, value_heads=32, key=16, value=16)
    o, pool = fused_recurrent_kda(**x, output_final_state=True)
    assert torch.isfinite(o).all() and torch.isfinite(pool).all()
    for row in (0, 1023, 2047):
        expected = expected_row(reference, x, row, x["initial_state"][row])
        assert close(o[row], expected[0]) and close(pool[row], expected[1])


@pytest.mark.parametrize("name", ["state_v_first", "transpose_state_layout"])
def test_both_pool_layouts(name):
    x = draw(2, value=48, slots=4)
    indices = torch.tensor([3, 1])
    o, pool = fused_recurrent_kda(**x, ssm_state_indices=indices, output_final_state=True)
    swapped = {**x, "initial_state": x["initial_state"].transpose(-1, -2).contiguous()}
    o_swapped, pool_swapped = fused_recurrent_kda(
        **swapped,
        ssm_state_indices=indices,
        output_final_state=True,
        inplace_final_state=True,
        **{name: True},
    )
    assert torch.equal(o_swapped, o) and torch.equal(pool_swapped.transpose(-1, -2), pool)


def test_a_strided_pool_is_updated_in_place():
    x = draw(2, slots=4)
    wide = torch.full((4, HV, D, 2 * D), 7.0)
    wide[..., ::2] = x["initial_state"]
    strided = {**x, "initial_state": wide[..., ::2]}
    indices = torch.tensor([3, 1])
    expected = fused_recurrent_kda(**x, ssm_state_indices=indices, output_final_state=True)[1]
    fused_recurrent_kda(**strided, ssm_state_indices=indices, inplace_final_state=True)
    assert torch.equal(wide[..., ::2], expected) and (wide[..., 1::2] == 7.0).all()


def test_a_pool_that_shares_memory_is_refused_in_place():
    x = draw(2)
    shared = {**x, "initial_state": x["initial_state"][:1].expand(2, -1, -1, -1)}
    with pytest.raises(ValueError, match="initial_state: found strides .*share memory.*contiguous"):
        fused_recurrent_kda(**shared, inplace_final_state=True)
    copied = fused_recurrent_kda(**shared, output_final_state=True)[1]
    assert copied.is_contiguous() and not torch.equal(copied[0], copied[1])


def test_slot_zero_as_padding_or_as_a_slot():
    x = draw(2, slots=3)
    before = x["initial_state"].clone()
    indices = torch.tensor([0, 2])
    o, _ = fused_recurrent_kda(
        **x, ssm_state_indices=indices, slot_zero_is_real=False, inplace_final_state=True
    )
    assert (o[0] == 0).all() and torch.equal(x["initial_state"][0], before[0])
    o, _ = fused_recurrent_kda(**x, ssm_state_indices=indices, inplace_final_state=True)
    assert (o[0] != 0).any() and not torch.equal(x["initial_state"][0], before[0])


def test_without_indices_slot_zero_is_a_slot():
    x = draw(2)
    assert torch.equal(fused_recurrent_kda(**x, slot_zero_is_real=False)[0], fused_recurrent_kda(**x)[0])


def test_speculative_tokens_choose_their_source(reference):
    x = draw(2, length=3, slots=8)
    before = x["initial_state"].clone()
    indices = torch.tensor([[1, 2, 3], [4, 5, 6]])
    o, pool = fused_recurrent_kda(
        **x, ssm_state_indices=indices, num_accepted_tokens=torch.tensor([1, 3]), output_final_state=True
    )
    for row, source in ((0, 1), (1, 6)):
        expected = expected_row(reference, x, row, before[source])
        assert close(o[row], expected[0]) and close(pool[indices[row, 2]], expected[1])
        first = {name: x[name][row : row + 1, :1] for name in ("q", "k", "v", "g", "beta")}
        after_one = expected_row(reference, {n: t for n, t in first.items()}, 0, before[source])[1]
        assert close(pool[indices[row, 0]], after_one)
    assert torch.equal(pool[0], before[0]) and torch.equal(pool[7], before[7])
    plain = fused_recurrent_kda(**x, ssm_state_indices=indices)[0]
    assert torch.equal(plain[0], o[0]) and not torch.equal(plain[1], o[1])


def test_one_slot_for_several_tokens():
    x = draw(2, length=3, slots=4)
    for indices in (torch.tensor([3, 1]), torch.tensor([[3], [1]])):
        pool = fused_recurrent_kda(**x, ssm_state_indices=indices, output_final_state=True)[1]
        assert torch.equal(pool[0], x["initial_state"][0]) and torch.equal(pool[2], x["initial_state"][2])
        assert not torch.equal(pool[1], x["initial_state"][1])


def test_bad_indices_stay_inside_the_pool():
    x = draw(2, slots=3)
    indices = torch.tensor([2**40, 3])
    with pytest.raises(
        ValueError, match="ssm_state_indices: found slot 1099511627776 in row 0; needed slots below 3"
    ):
        fused_recurrent_kda(**x, ssm_state_indices=indices, check_values=True)
    o, pool = fused_recurrent_kda(**x, ssm_state_indices=indices, output_final_state=True)
    assert (o == 0).all() and torch.equal(pool, x["initial_state"])
    x = draw(2, length=2, slots=4)
    table = torch.tensor([[0, 1], [2, 3]])
    for counts in ([0, 3], [-(2**40), 2**40]):
        accepted = torch.tensor(counts)
        with pytest.raises(ValueError, match="num_accepted_tokens: found .* in row 0; needed 1 to T = 2"):
            fused_recurrent_kda(**x, ssm_state_indices=table, num_accepted_tokens=accepted, check_values=True)
        assert torch.isfinite(
            fused_recurrent_kda(**x, ssm_state_indices=table, num_accepted_tokens=accepted)[0]
        ).all()


def test_two_rows_on_one_slot_are_found_on_request():
    x = draw(3, slots=4)
    with pytest.raises(ValueError, match="slot 2 in rows 0 and 2"):
        fused_recurrent_kda(**x, ssm_state_indices=torch.tensor([2, 1, 2]), check_values=True)
    fused_recurrent_kda(**x, ssm_state_indices=torch.tensor([-1, 1, -1]), check_values=True)
    skipped = torch.tensor([0, 1, 0])
    fused_recurrent_kda(**x, ssm_state_indices=skipped, slot_zero_is_real=False, check_values=True)
    with pytest.raises(ValueError, match="slot 0 in rows 0 and 2"):
        fused_recurrent_kda(**x, ssm_state_indices=skipped, check_values=True)


def test_k15_inputs_are_not_written():
    x = draw(2, length=2, slots=6)
    x |= {
        "A_log": torch.randn(HV),
        "dt_bias": torch.randn(HV, D),
        "num_accepted_tokens": torch.tensor([1, 2]),
    }
    x["ssm_state_indices"] = torch.tensor([[1, 2], [4, 5]], dtype=torch.int32)
    before = {name: tensor.clone() for name, tensor in x.items()}
    options = {
        "use_gate_in_kernel": True,
        "use_qk_l2norm_in_kernel": True,
        "use_beta_sigmoid_in_kernel": True,
    }
    fused_recurrent_kda(**x, **options, output_final_state=True)
    for name, tensor in x.items():
        assert torch.equal(tensor, before[name]), name
    fused_recurrent_kda(**x, **options, inplace_final_state=True)
    assert [name for name, tensor in x.items() if not torch.equal(tensor, before[name])] == ["initial_state"]


def test_what_decoding_refuses():
    x = draw(2, length=2, slots=4)
    rows = torch.tensor([1, 2])
    for change, message in (
        ({"cu_seqlens": torch.tensor([0, 2, 4])}, "cu_seqlens: found a tensor; needed None"),
        ({}, r"initial_state: found shape \[4, 4, 32, 32\]; needed \[N, HV, K, V\] = \[2, 4, 32, 32\]"),
        ({"ssm_state_indices": torch.tensor([1])}, r"ssm_state_indices: found shape \[1\]"),
        (
            {"ssm_state_indices": torch.ones(2, 3, dtype=torch.int64)},
            r"needed \[N\] = \[2\] or \[N, T\] = \[2, 2\]",
        ),
        ({"ssm_state_indices": torch.ones(2)}, "ssm_state_indices: found dtype torch.float32"),
        ({"ssm_state_indices": rows, "num_accepted_tokens": rows}, "without one slot for each token"),
        (
            {"ssm_state_indices": rows[:, None].expand(2, 2), "num_accepted_tokens": rows[:1]},
            r"num_accepted_tokens: found shape \[1\]; needed \[N\] = \[2\]",
        ),
        ({"ssm_state_indices": [1, 2]}, "ssm_state_indices: found list; needed a torch tensor"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            fused_recurrent_kda(**{**x, **change})
    fused_recurrent_kda(**x, ssm_state_indices=rows)
    for length in (0, 9):
        with pytest.raises(ValueError, match=f"q: found T = {length} tokens.*T from 1 to 8; use chunk_kda"):
            fused_recurrent_kda(**draw(2, length=length))


def test_a_pool_of_another_dtype():
    x = draw(2)
    x["initial_state"] = x["initial_state"].bfloat16()
    assert fused_recurrent_kda(**x, output_final_state=True)[1].dtype == torch.bfloat16
    with pytest.raises(TypeError, match="initial_state: found dtype torch.float64"):
        fused_recurrent_kda(**{**x, "initial_state": x["initial_state"].double()})


def test_no_rows():
    x = draw(0, slots=3)
    o, pool = fused_recurrent_kda(
        **x, ssm_state_indices=torch.zeros(0, dtype=torch.int64), output_final_state=True
    )
    assert o.shape == (0, 1, HV, D) and torch.equal(pool, x["initial_state"])
