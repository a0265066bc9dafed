"""Relations hold for the honest emulations; each has a kernel that breaks it and nothing else of it."""

import numpy as np
import pytest

from kdsl.validate import bfloat16, relations
from kdsl.validate.call import nan_outputs, reference
from kdsl.validate.emulation import HONEST, ChunkedKernel
from kdsl.validate.errors import ArrayError
from kdsl.validate.probes import random_call

KERNEL = HONEST["chunk 64"]


@pytest.fixture(scope="module")
def whole():
    return random_call(np.random.default_rng(1), 150)


@pytest.fixture(scope="module")
def packed():
    return random_call(np.random.default_rng(2), 150, lengths=(70, 0, 1, 79))


@pytest.fixture(scope="module")
def batch(whole):
    names = ("q", "k", "v", "g", "beta")
    rows = {name: whole[name].reshape(3, 50, *whole[name].shape[2:]) for name in names}
    state = np.random.default_rng(3).standard_normal((3, 2, 128, 128)).astype(np.float32)
    return whole | rows | {"initial_state": state}


@pytest.mark.parametrize("kernel", HONEST)
def test_honest_kernels_keep_every_relation(kernel, whole, packed, batch):
    run = HONEST[kernel]
    for check in relations.RELATIONS.values():
        for call in (whole, packed, batch):
            assert check(run, call) == ()
    assert relations.splitting_at_chunk(run, whole) == ()
    assert relations.splitting_at_chunk(run, batch, at=0) == ()
    assert relations.batched_equals_packed(run, batch) == ()


def test_the_oracle_keeps_them_too(whole, batch):
    for check in relations.RELATIONS.values():
        assert check(reference, whole) == ()
    assert relations.splitting_at_chunk(reference, whole, at=37) == ()
    assert relations.batched_equals_packed(reference, batch) == ()


def test_off_a_boundary_a_split_agrees_within_the_limits_only(whole):
    assert relations.splitting_at_chunk(KERNEL, whole, at=37, exact=False) == ()
    (first, *_) = relations.splitting_at_chunk(KERNEL, whole, at=37)
    assert "the same bits needed" in first.explain()


def test_a_midpoint_inside_the_chunk_leaks_rounding_and_no_more(whole):
    run = HONEST["chunk 32, midpoint"]
    assert relations.causality(run, whole, at=40) != ()
    assert relations.causality(run, whole, at=40, exact=False) == ()


def test_a_state_that_a_split_drops_is_found(whole):
    found = relations.splitting_at_chunk(ChunkedKernel(reads_initial_state=False), whole, exact=False)
    assert {finding.check for finding in found} == {"splitting at token 64"}


def test_an_offset_is_not_linear(whole):
    def run(call):
        o, state = KERNEL(call)
        return o + np.float32(2**-8), state

    (finding,) = relations.doubling_is_exact(run, whole)
    assert "of o, the first at (0, 0, 0, 0), went from" in finding.explain()


def test_values_in_the_range_of_flushing_are_left_out(whole):
    tiny = whole | {"v": whole["v"] & np.uint16(0), "initial_state": whole["initial_state"] * np.float32(0)}

    def flushes(call):
        o, state = KERNEL(call)
        return o + np.float32(1e-36), state

    assert relations.doubling_is_exact(flushes, tiny) == ()


def test_a_look_ahead_is_found(whole, packed):
    def run(call):
        o, state = KERNEL(call)
        o[:, :-1] += np.float32(2**-6) * bfloat16.decode(call["v"])[:, 1:]
        return o, state

    for call in (whole, packed):
        (finding,) = relations.causality(run, call)
        assert finding.check == "causality at token 64"


def test_a_packed_kernel_that_leaks_across_a_boundary_is_found(batch):
    def run(call):
        wrong = {"cu_seqlens": np.array([0, 49, 100, 150])} if "cu_seqlens" in call else {}
        return KERNEL({**call, **wrong})

    found = relations.batched_equals_packed(run, batch, exact=False)
    assert [finding.check for finding in found] == ["batched equals packed"] * 2


def test_written_inputs_are_named_and_the_callers_call_stays(packed):
    def run(call):
        call["cu_seqlens"] += 1
        call["beta"][0, 0, 0] ^= 1
        return nan_outputs(call)

    kept = packed["cu_seqlens"].copy()
    details = {finding.detail for finding in relations.inputs_unchanged(run, packed)}
    assert details == {"cu_seqlens was written", "beta was written"}
    assert np.array_equal(packed["cu_seqlens"], kept)


@pytest.mark.parametrize("format", ["float32", "patterns"])
def test_an_element_never_written_is_found(packed, format):
    def run(call):
        o, state = KERNEL(call)
        o[0, 149, 1, 127] = nan_outputs(call)[0][0, 149, 1, 127]
        return bfloat16.encode(o) if format == "patterns" else o, state

    (finding,) = relations.outputs_complete(run, packed)
    assert "first at (0, 149, 1, 127)" in finding.detail


def test_missing_and_misshapen_outputs_are_found(whole):
    found = relations.outputs_complete(lambda call: (KERNEL(call)[0][:, :-1], None), whole)
    assert [finding.detail.split()[0] for finding in found] == ["o", "final_state"]


def test_calls_of_the_wrong_form_are_refused(packed, whole):
    for check in (relations.splitting_at_chunk, relations.batched_equals_packed):
        with pytest.raises(ArrayError, match="cu_seqlens"):
            check(KERNEL, packed)
    with pytest.raises(ArrayError, match="0 to 150"):
        relations.splitting_at_chunk(KERNEL, whole, at=192)
