"""Calls: the vocabulary of chunk_kda reaches the oracle unchanged, and digests see every byte."""

import numpy as np
import pytest

from kdsl.validate import oracle
from kdsl.validate.call import (
    copy_of,
    digest,
    gate_of,
    nan_outputs,
    oracle_arguments,
    output_shapes,
    reference,
)
from kdsl.validate.errors import MissingArrayError, OptionError
from kdsl.validate.probes import random_call


@pytest.fixture
def call():
    return random_call(np.random.default_rng(0), 20, lengths=(0, 13, 7))


def test_the_reference_is_the_oracle_with_the_same_options(call):
    o, state = reference(call)
    needed = oracle.chunk_forward(
        *(call[name] for name in ("q", "k", "v", "g", "beta")), initial_state=call["initial_state"],
        cu_seqlens=call["cu_seqlens"], A_log=call["A_log"], dt_bias=call["dt_bias"], gate="bounded",
        lower_bound=-5.0, use_qk_l2norm=True, beta_sigmoid=True,
    )  # fmt: skip
    assert np.array_equal(o, needed[0]) and np.array_equal(state, needed[1])
    assert output_shapes(call) == (o.shape, state.shape)


def test_gates_are_told_apart_as_chunk_kda_does(call):
    assert gate_of(call) == "bounded"
    assert gate_of(call | {"lower_bound": None}) == "softplus"
    assert gate_of(call | {"use_gate_in_kernel": False}) == "precomputed"
    arguments = oracle_arguments(call | {"use_gate_in_kernel": False, "safe_gate": False})
    assert "A_log" not in arguments and arguments["gate"] == "precomputed"


def test_both_names_of_the_layout(call):
    state = call["initial_state"].swapaxes(-1, -2).copy()
    new = reference(call | {"initial_state": state, "state_v_first": True})
    old = reference(call | {"initial_state": state, "transpose_state_layout": True})
    assert np.array_equal(new[1], old[1]) and np.array_equal(new[1].swapaxes(-1, -2), reference(call)[1])
    with pytest.raises(OptionError, match="transpose_state_layout"):
        reference(call | {"state_v_first": True, "transpose_state_layout": True})


@pytest.mark.parametrize("bound", [None, 0.0, -5.5, 1.0])
def test_safe_gate_needs_its_bound(call, bound):
    with pytest.raises(OptionError, match="safe_gate"):
        oracle_arguments(call | {"lower_bound": bound})


def test_what_chunk_kda_does_not_take_is_refused(call):
    with pytest.raises(OptionError, match="cu_seqlen"):
        oracle_arguments(call | {"cu_seqlen": call["cu_seqlens"]})
    with pytest.raises(MissingArrayError, match="beta"):
        oracle_arguments(copy_of(call, beta=None))


def test_nan_outputs_have_the_shapes_of_the_results(call):
    for array, needed in zip(nan_outputs(call), reference(call), strict=True):
        assert array.shape == needed.shape and np.isnan(array).all()


def test_copies_share_nothing_and_digests_see_one_bit(call):
    copy = copy_of(call)
    assert digest(copy) == digest(call)
    for name in digest(call):
        other = copy_of(call)
        other[name].reshape(-1).view(np.uint8)[-1] ^= 1
        assert [x for x in digest(call) if digest(other)[x] != digest(call)[x]] == [name]
    assert digest(call)["q"] != digest(call | {"q": call["q"].reshape(1, 20, 1, 256)})["q"]
