"""The forward oracle against a scalar triple loop, the chunk form, and the contract's edges."""

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdsl.validate import bfloat16, oracle
from kdsl.validate.emulation import ChunkedKernel
from kdsl.validate.errors import ArrayError, MissingArrayError, OptionError

TIGHT = {"rtol": 1e-11, "atol": 1e-12}


def scalar_sequence(q, k, v, decay, beta, state):
    """One sequence and one head in Python floats: q, k, decay [T][K]; v [T][V]; beta [T]; state [K][V]."""
    state = [[float(x) for x in row] for row in state]
    outputs = []
    for t in range(len(beta)):
        for i in range(len(state)):
            for j in range(len(state[0])):
                state[i][j] *= decay[t][i]
        for j in range(len(state[0])):
            found = math.fsum(state[i][j] * k[t][i] for i in range(len(state)))
            for i in range(len(state)):
                state[i][j] += k[t][i] * beta[t] * (v[t][j] - found)
        columns = range(len(state[0]))
        outputs.append([math.fsum(state[i][j] * q[t][i] for i in range(len(state))) for j in columns])
    return np.reshape(outputs, (len(beta), len(state[0]))), np.array(state)


def scalar_gate(g, kind, A_log, bias, bound):
    if kind == "precomputed":
        return math.exp(g)
    if kind == "softplus":
        return math.exp(-math.exp(A_log) * math.log1p(math.exp(g + bias)))
    return math.exp(bound / (1 + math.exp(-math.exp(A_log) * (g + bias))))


def scalar_forward(x, kind, cu, l2norm, sigmoid, doubled, scale):
    """The whole contract, element by element, from the float64 arrays of `x`."""
    _, tokens, heads, channels = x["q"].shape
    value_heads, width = x["v"].shape[2:]
    o = np.zeros((1, tokens, value_heads, width))
    states = np.zeros((len(cu) - 1, value_heads, channels, width))
    for n in range(len(cu) - 1):
        for hv in range(value_heads):
            h, part = hv // (value_heads // heads), range(cu[n], cu[n + 1])

            def rows(name, factor, h=h, part=part):
                found = []
                for t in part:
                    row = [float(e) for e in x[name][0, t, h]]
                    size = math.sqrt(math.fsum(e * e for e in row) + 1e-6) if l2norm else 1.0
                    found.append([e / size * factor for e in row])
                return found

            decay = [[scalar_gate(x["g"][0, t, hv, i], kind, x["A_log"][hv], x["dt_bias"][hv, i], -5.0)
                      for i in range(channels)] for t in part]  # fmt: skip
            beta = [x["beta"][0, t, hv] for t in part]
            if sigmoid:
                beta = [(2 if doubled else 1) / (1 + math.exp(-b)) for b in beta]
            found = scalar_sequence(rows("q", scale), rows("k", 1.0), x["v"][0, part.start : part.stop, hv],
                                    decay, beta, x["initial_state"][n, hv])  # fmt: skip
            o[0, part.start : part.stop, hv], states[n, hv] = found
    return o, states


def arrays(rng, tokens, heads, value_heads, channels, width, sequences, kind="precomputed"):
    g = rng.standard_normal((1, tokens, value_heads, channels))
    return {
        "q": rng.standard_normal((1, tokens, heads, channels)),
        "k": rng.standard_normal((1, tokens, heads, channels)) / channels**0.5,
        "v": rng.standard_normal((1, tokens, value_heads, width)),
        "g": -np.abs(g) if kind == "precomputed" else g,
        "beta": rng.uniform(0, 1, (1, tokens, value_heads)),
        "initial_state": rng.standard_normal((sequences, value_heads, channels, width)),
        "A_log": rng.uniform(-1, 1, value_heads),
        "dt_bias": rng.standard_normal((value_heads, channels)),
    }


def gate_arguments(x, kind):
    if kind == "precomputed":
        return {"gate": kind}
    bound = {"lower_bound": -5.0} if kind == "bounded" else {}
    return {"gate": kind, "A_log": x["A_log"], "dt_bias": x["dt_bias"], **bound}


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    heads=st.integers(1, 2),
    spread=st.integers(1, 3),
    channels=st.integers(1, 4),
    width=st.integers(1, 4),
    kind=st.sampled_from(["precomputed", "softplus", "bounded"]),
    l2norm=st.booleans(),
    strength=st.sampled_from([(False, False), (True, False), (True, True)]),
    scale=st.sampled_from([None, 0.7]),
    v_first=st.booleans(),
)
def test_agrees_with_a_scalar_loop(
    seed, lengths, heads, spread, channels, width, kind, l2norm, strength, scale, v_first
):
    rng, value_heads = np.random.default_rng(seed), heads * spread
    x = arrays(rng, sum(lengths), heads, value_heads, channels, width, len(lengths), kind)
    cu = np.cumsum([0, *lengths])
    inner = [x[name] for name in ("q", "k", "v", "g", "beta")]
    state = x["initial_state"].swapaxes(-1, -2) if v_first else x["initial_state"]
    o, final = oracle.chunk_forward(
        *inner, scale=scale, initial_state=state, cu_seqlens=cu, use_qk_l2norm=l2norm, state_v_first=v_first,
        beta_sigmoid=strength[0], allow_neg_eigval=strength[1], **gate_arguments(x, kind),
    )  # fmt: skip
    factor = channels**-0.5 if scale is None else scale
    needed_o, needed_state = scalar_forward(x, kind, cu.tolist(), l2norm, *strength, factor)
    np.testing.assert_allclose(o, needed_o, **TIGHT)
    np.testing.assert_allclose(final.swapaxes(-1, -2) if v_first else final, needed_state, **TIGHT)


@pytest.mark.parametrize("chunk", [1, 7, 16, 64])
@pytest.mark.parametrize("kind", ["precomputed", "softplus", "bounded"])
def test_agrees_with_the_chunk_form_in_float64(chunk, kind):
    x = arrays(np.random.default_rng(chunk), 150, 2, 4, 32, 24, 4, kind)
    call = {name: x[name] for name in ("q", "k", "v", "g", "beta", "initial_state")}
    call |= {"cu_seqlens": np.array([0, 0, 1, 130, 150]), "use_qk_l2norm_in_kernel": True}
    if kind != "precomputed":
        bound = -5.0 if kind == "bounded" else None
        call |= {name: x[name] for name in ("A_log", "dt_bias")}
        call |= {"use_gate_in_kernel": True, "lower_bound": bound}
    exact = ChunkedKernel(chunk=chunk, arithmetic=np.float64, operands="exact")
    o, state = exact(call)
    needed_o, needed_state = oracle.chunk_forward(
        *(x[name] for name in ("q", "k", "v", "g", "beta")), initial_state=x["initial_state"],
        cu_seqlens=call["cu_seqlens"], use_qk_l2norm=True, **gate_arguments(x, kind),
    )  # fmt: skip
    np.testing.assert_allclose(o, needed_o, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(state, needed_state, rtol=1e-9, atol=1e-11)


def five(x):
    return [x[name] for name in ("q", "k", "v", "g", "beta")]


def test_only_empty_sequences_hand_their_states_on():
    x = arrays(np.random.default_rng(1), 0, 2, 2, 8, 8, 2)
    cu = np.zeros(3, np.int32)
    o, final = oracle.chunk_forward(*five(x), initial_state=x["initial_state"], cu_seqlens=cu)
    assert o.shape == (1, 0, 2, 8)
    assert np.array_equal(final, x["initial_state"])


def test_an_empty_sequence_between_others():
    x = arrays(np.random.default_rng(2), 12, 1, 2, 4, 4, 3)
    cu = np.array([0, 6, 6, 12])
    o, final = oracle.chunk_forward(*five(x), initial_state=x["initial_state"], cu_seqlens=cu)
    assert np.array_equal(final[1], x["initial_state"][1])
    alone, last = oracle.chunk_forward(*(a[:, 6:] for a in five(x)), initial_state=x["initial_state"][2:])
    assert np.array_equal(o[:, 6:], alone) and np.array_equal(final[2:], last)
    _, zero = oracle.chunk_forward(*five(x), cu_seqlens=cu)
    assert (zero[1] == 0).all()


def test_layouts_are_transposed_copies_of_each_other():
    x = arrays(np.random.default_rng(3), 30, 1, 2, 6, 5, 1)
    o, final = oracle.chunk_forward(*five(x), initial_state=x["initial_state"])
    turned = x["initial_state"].swapaxes(-1, -2)
    other_o, other = oracle.chunk_forward(*five(x), initial_state=turned, state_v_first=True)
    assert np.array_equal(o, other_o) and np.array_equal(final, other.swapaxes(-1, -2))


def test_a_batch_is_a_row_of_its_own_sequences():
    x = arrays(np.random.default_rng(4), 12, 1, 2, 4, 4, 3)
    cu = np.array([0, 4, 8, 12])
    packed = oracle.chunk_forward(*five(x), initial_state=x["initial_state"], cu_seqlens=cu)
    batch = [a.reshape(3, 4, *a.shape[2:]) for a in five(x)]
    o, final = oracle.chunk_forward(*batch, initial_state=x["initial_state"])
    assert np.array_equal(o.reshape(packed[0].shape), packed[0]) and np.array_equal(final, packed[1])


def test_bfloat16_patterns_and_views_are_read_and_never_written():
    x = arrays(np.random.default_rng(5), 20, 1, 1, 8, 8, 1)
    patterns = [bfloat16.encode(a) for a in five(x)]
    values = [bfloat16.decode(a).astype(np.float64) for a in patterns]
    before = [a.tobytes() for a in patterns]
    state = x["initial_state"].copy()
    first = oracle.chunk_forward(*patterns, initial_state=state)
    second = oracle.chunk_forward(*(np.repeat(a, 2, axis=-1)[..., ::2] for a in values), initial_state=state)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert [a.tobytes() for a in patterns] == before and np.array_equal(state, x["initial_state"])
    assert not np.shares_memory(first[1], state)


def test_the_largest_published_gates_stay_finite():
    rng = np.random.default_rng(6)
    x = arrays(rng, 64, 1, 1, 16, 16, 1, "softplus")
    o, final = oracle.chunk_forward(
        *five(x), gate="softplus", A_log=np.log([201.0]), dt_bias=np.full(16, 12.0), use_qk_l2norm=True
    )
    assert np.isfinite(o).all() and np.isfinite(final).all()
    assert np.abs(o).max() > 1e-3


@pytest.mark.parametrize(
    ("change", "error", "name"),
    [
        ({"g": np.zeros((1, 4, 2))}, ArrayError, r"g: found shape \(1, 4, 2\), .* \(1, 4, 2, 8\)"),
        ({"k": np.zeros((1, 3, 1, 8))}, ArrayError, "k: "),
        ({"beta": None}, MissingArrayError, "beta"),
        ({"q": np.zeros((4, 1, 8))}, ArrayError, "q: "),
        ({"v": np.zeros((1, 4, 2, 8), np.int32)}, ArrayError, "v: found int32"),
        ({"q": np.zeros((1, 4, 3, 8)), "k": np.zeros((1, 4, 3, 8))}, ArrayError, "multiple of the 3 heads"),
        ({"initial_state": np.zeros((1, 2, 8, 7))}, ArrayError, "initial_state"),
        ({"cu_seqlens": np.array([0, 5])}, ArrayError, "cu_seqlens"),
        ({"cu_seqlens": np.array([0, 3, 2, 4])}, ArrayError, "cu_seqlens"),
        ({"cu_seqlens": np.array([1, 4])}, ArrayError, "cu_seqlens"),
        ({"cu_seqlens": np.array([0.0, 4.0])}, ArrayError, "cu_seqlens"),
        ({"cu_seqlens": np.zeros(0, np.int64)}, ArrayError, "cu_seqlens"),
        ({"scale": float("nan")}, OptionError, "scale"),
        ({"allow_neg_eigval": True}, OptionError, "allow_neg_eigval"),
    ],
)
def test_refusals_name_the_argument(change, error, name):
    x = arrays(np.random.default_rng(7), 4, 1, 2, 8, 8, 1)
    arguments = {key: x[key] for key in ("q", "k", "v", "g", "beta")} | change
    with pytest.raises(error, match=name) as caught:
        oracle.chunk_forward(**arguments)
    assert isinstance(caught.value, ValueError)


def test_packed_sequences_need_a_batch_of_one():
    x = arrays(np.random.default_rng(8), 4, 1, 1, 4, 4, 1)
    with pytest.raises(ArrayError, match="batch 2"):
        oracle.chunk_forward(*(np.concatenate([a, a]) for a in five(x)), cu_seqlens=np.array([0, 4]))


def test_a_long_call_takes_seconds():
    x = arrays(np.random.default_rng(9), 2048, 4, 4, 128, 128, 1)
    start = time.perf_counter()
    oracle.chunk_forward(*five(x), use_qk_l2norm=True)
    assert time.perf_counter() - start < 10
