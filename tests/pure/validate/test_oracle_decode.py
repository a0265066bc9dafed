"""The decode oracle: slots, nulls, speculative tokens, and its agreement with the forward oracle."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdsl.validate import oracle
from kdsl.validate.errors import ArrayError, MissingArrayError, OptionError

H, HV, K, V = 1, 2, 6, 5


def tokens_of(rng, rows, tokens):
    return [
        rng.standard_normal((rows, tokens, H, K)),
        rng.standard_normal((rows, tokens, H, K)) / K**0.5,
        rng.standard_normal((rows, tokens, HV, V)),
        -rng.uniform(0, 1, (rows, tokens, HV, K)),
        rng.uniform(0, 1, (rows, tokens, HV)),
    ]


def step_by_step(x, row, state):
    """Outputs of one row and its state after every token, from the forward oracle one token at a time."""
    outputs, states = [], []
    for t in range(x[0].shape[1]):
        o, state = oracle.chunk_forward(*(a[row : row + 1, t : t + 1] for a in x), initial_state=state[None])
        state = state[0]
        outputs.append(o[0, 0])
        states.append(state)
    return np.stack(outputs), states


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(0, 4),
    tokens=st.integers(1, 8),
    zero_is_real=st.booleans(),
    v_first=st.booleans(),
    null_share=st.sampled_from([0.0, 0.3]),
)
def test_speculative_rows_agree_with_the_forward(seed, rows, tokens, zero_is_real, v_first, null_share):
    rng = np.random.default_rng(seed)
    x = tokens_of(rng, rows, tokens)
    pool = rng.standard_normal((rows * tokens + 2, HV, K, V))
    table = rng.permutation(len(pool))[: rows * tokens].reshape(rows, tokens)
    table[rng.random(table.shape) < null_share] = -1
    accepted = rng.integers(1, tokens + 1, rows)
    o, after = oracle.decode(
        *x, pool.swapaxes(-1, -2) if v_first else pool, ssm_state_indices=table, num_accepted_tokens=accepted,
        slot_zero_is_real=zero_is_real, state_v_first=v_first,
    )  # fmt: skip
    lowest = 0 if zero_is_real else 1
    needed_o, needed = np.zeros_like(o), pool.copy()
    for n in range(rows):
        source = table[n, accepted[n] - 1]
        if source >= lowest:
            needed_o[n], states = step_by_step(x, n, pool[source])
            for t in range(tokens):
                if table[n, t] >= lowest:
                    needed[table[n, t]] = states[t]
    np.testing.assert_allclose(o, needed_o, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(after.swapaxes(-1, -2) if v_first else after, needed, rtol=1e-13, atol=1e-14)


def test_one_slot_a_row_is_written_once_at_the_end():
    rng = np.random.default_rng(0)
    x, pool = tokens_of(rng, 2, 3), rng.standard_normal((5, HV, K, V))
    kept = pool.copy()
    o, after = oracle.decode(*x, pool, ssm_state_indices=np.array([3, 1], np.int32))
    for row, slot in ((0, 3), (1, 1)):
        needed_o, states = step_by_step(x, row, pool[slot])
        np.testing.assert_array_equal(o[row], needed_o)
        np.testing.assert_array_equal(after[slot], states[-1])
    assert np.array_equal(after[[0, 2, 4]], pool[[0, 2, 4]]) and np.array_equal(pool, kept)


def test_without_indices_row_n_has_slot_n():
    rng = np.random.default_rng(1)
    x, pool = tokens_of(rng, 3, 1), rng.standard_normal((4, HV, K, V))
    with_indices = oracle.decode(*x, pool, ssm_state_indices=np.arange(3))
    without = oracle.decode(*x, pool, slot_zero_is_real=False)
    assert all(np.array_equal(a, b) for a, b in zip(with_indices, without, strict=True))


@pytest.mark.parametrize(
    ("slots", "indices", "live"), [(3, [2, -1], {0: 2}), (5, [-1, 3], {1: 3}), (5, [-7, -1], {})]
)
def test_a_negative_index_skips_its_row(slots, indices, live):
    rng = np.random.default_rng(2)
    x, pool = tokens_of(rng, 2, 1), rng.standard_normal((slots, HV, K, V)).astype(np.float32)
    o, after = oracle.decode(*x, pool, ssm_state_indices=np.array(indices))
    for row in range(2):
        assert o[row].any() == (row in live)
    for slot in range(slots):
        assert np.array_equal(after[slot], pool[slot]) == (slot not in live.values())


def test_slot_zero_is_null_only_when_asked():
    rng = np.random.default_rng(3)
    x, pool = tokens_of(rng, 2, 1), rng.standard_normal((3, HV, K, V))
    o, after = oracle.decode(*x, pool, ssm_state_indices=np.array([0, 2]))
    assert o[0].any() and not np.array_equal(after[0], pool[0])
    o, after = oracle.decode(*x, pool, ssm_state_indices=np.array([0, 2]), slot_zero_is_real=False)
    assert not o[0].any() and np.array_equal(after[0], pool[0]) and o[1].any()


def test_rows_padded_with_nulls_may_have_any_accepted_count():
    rng = np.random.default_rng(4)
    x, pool = tokens_of(rng, 2, 2), rng.standard_normal((3, HV, K, V))
    table, accepted = np.array([[1, 2], [-1, -1]]), np.array([2, 0])
    o, _ = oracle.decode(*x, pool, ssm_state_indices=table, num_accepted_tokens=accepted)
    assert o[0].any() and not o[1].any()


@pytest.mark.parametrize(
    ("options", "error", "name"),
    [
        ({"ssm_state_indices": np.array([0, 4])}, ArrayError, "slot 4"),
        ({"ssm_state_indices": np.array([0.0, 1.0])}, ArrayError, "float64"),
        ({"ssm_state_indices": np.array([0, 1, 2])}, ArrayError, "ssm_state_indices"),
        ({"ssm_state_indices": np.array([1, 1])}, ArrayError, r"slot 1 used by rows \[0, 1\]"),
        ({"ssm_state_indices": np.array([[0, 1], [1, 2]])}, ArrayError, "slot 1 used by rows"),
        ({"num_accepted_tokens": np.array([1, 1])}, OptionError, "num_accepted_tokens"),
        (
            {"ssm_state_indices": np.array([0, 1]), "num_accepted_tokens": np.array([1, 1])},
            ArrayError,
            "one slot",
        ),
        (
            {"ssm_state_indices": np.array([[0, 1], [2, 3]]), "num_accepted_tokens": np.array([0, 1])},
            ArrayError,
            "num_accepted_tokens",
        ),
    ],
)
def test_refusals_name_the_argument(options, error, name):
    rng = np.random.default_rng(5)
    with pytest.raises(error, match=name):
        oracle.decode(*tokens_of(rng, 2, 2), rng.standard_normal((4, HV, K, V)), **options)


def test_pool_and_token_counts_are_checked():
    rng = np.random.default_rng(6)
    with pytest.raises(ArrayError, match="1 to 8"):
        oracle.decode(*tokens_of(rng, 1, 9), rng.standard_normal((1, HV, K, V)))
    with pytest.raises(ArrayError, match="at least 2"):
        oracle.decode(*tokens_of(rng, 2, 1), rng.standard_normal((1, HV, K, V)))
    with pytest.raises(ArrayError, match="pool"):
        oracle.decode(*tokens_of(rng, 1, 1), rng.standard_normal((1, HV, V, K)))
    with pytest.raises(MissingArrayError, match="pool"):
        oracle.decode(*tokens_of(rng, 1, 1), None)
