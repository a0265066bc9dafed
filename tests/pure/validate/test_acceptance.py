"""Acceptance: exactly on a limit is within it, one step beyond is not, and nothing missing ever passes."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdsl.validate import bfloat16
from kdsl.validate.acceptance import NEARLY_EQUAL_KEYS_STATE_RMS_LIMIT, acceptance, compare, ratio, rms
from kdsl.validate.errors import ArrayError, MissingArrayError


def test_rms_limit_is_exact():
    reference = np.full((4, 4), 100.0)
    on = compare(reference + 1, reference)
    assert on.accepted and on.rms_ratio == 0.01
    beyond = compare(np.nextafter(reference + 1, 200), reference)
    assert not beyond.accepted and beyond.worst_share < 1


@pytest.mark.parametrize(
    ("reference", "place", "limit"),
    [
        ([0.0, 0.0, 0.0, 2048.0], 0, 256.0),  # rms 1024: a quarter of it
        ([1024.0, -1024.0], 1, 256.0),
        ([-20480.0] + [0.0] * 399, 0, 512.0),  # rms 1024: 2.5% of the value is more
    ],
)
@pytest.mark.parametrize("side", [-1, 1])
def test_element_limit_is_exact(reference, place, limit, side):
    reference = np.array(reference)
    x = reference.copy()
    x[place] += side * limit
    on = compare(x, reference, rms_limit=1.0)
    assert on.accepted and on.worst_share == 1 and on.worst_limit == limit and on.worst_error == limit
    x[place] += side * 4096 * np.spacing(limit)
    beyond = compare(x, reference, rms_limit=1.0)
    assert not beyond.accepted and beyond.worst_index == (place,) and beyond.rms_ratio < 1


def test_one_bad_element_in_a_million_is_not_exempt():
    reference = np.ones(1_000_000)
    x = reference.copy()
    x[123_456] = 1.3
    found = compare(x, reference, name="o")
    assert not found.accepted and found.worst_index == (123_456,)
    assert found.worst_share == pytest.approx(1.2) and "[123456]" in found.explain()


@pytest.mark.parametrize("flaw", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_never_passes(flaw):
    good, bad = np.ones((2, 3)), np.ones((2, 3))
    bad[1, 2] = flaw
    for x, reference in ((bad, good), (good, bad), (bad, bad)):
        word = "it is not finite" if reference is good else "its reference is not finite"
        found = compare(x, reference)
        assert not found.accepted and found.worst_index == (1, 2) and word in found.explain()


def test_a_zero_reference_needs_exact_zeros():
    zero = np.zeros((3, 3))
    assert compare(zero, zero).accepted and compare(-zero, zero).rms_ratio == 0
    x = zero.copy()
    x[0, 1] = 1e-300
    found = compare(x, zero)
    assert not found.accepted and found.worst_share == np.inf and found.rms_ratio == np.inf


def test_a_reference_of_zero_and_one_element():
    reference = np.array([0.0, 0.0, 0.0, 2.0])
    assert compare(np.array([0.0, 0.0, 0.0, 2.01]), reference).accepted
    assert not compare(np.zeros(4), reference).accepted


def test_empty_arrays_are_accepted_but_only_of_the_same_shape():
    found = compare(np.zeros((1, 0, 2)), np.zeros((1, 0, 2)))
    assert found.accepted and "empty" in found.explain()
    with pytest.raises(ArrayError, match=r"o: found shape \(1, 0, 3\)"):
        compare(np.zeros((1, 0, 3)), np.zeros((1, 0, 2)), name="o")


def test_missing_results_are_errors():
    one = np.ones(3)
    with pytest.raises(MissingArrayError, match="final_state"):
        acceptance(one, None, one, one)
    with pytest.raises(MissingArrayError, match="reference of o"):
        acceptance(one, one, None, one)


def test_a_mismatch_that_would_broadcast_is_an_error():
    with pytest.raises(ArrayError, match="expected shape"):
        compare(np.ones((4, 1)), np.ones((4, 4)))


def test_the_state_limit_applies_to_the_state_alone():
    reference = np.full(100, 1.0)
    off = reference * 1.015
    assert not acceptance(reference, off, reference, reference).accepted
    loose = NEARLY_EQUAL_KEYS_STATE_RMS_LIMIT
    assert acceptance(reference, off, reference, reference, state_rms_limit=loose).accepted
    found = acceptance(off, reference, reference, reference, state_rms_limit=loose)
    assert not found.accepted and "final_state" not in found.explain() and "0.015" in found.explain()


def test_patterns_are_read_as_bfloat16():
    reference = np.linspace(-2, 2, 1000)
    assert compare(bfloat16.encode(reference), reference).accepted
    assert not compare(bfloat16.encode(reference[::-1].copy()), reference).accepted


def test_results_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        compare(np.ones(1), np.ones(1)).finite = False


@given(st.integers(-1060, 1000), st.integers(0, 2**32 - 1))
def test_scale_changes_no_verdict(exponent, seed):
    rng = np.random.default_rng(seed)
    reference = rng.standard_normal(50)
    x = reference + rng.normal(0, 0.01, 50)
    plain = compare(x, reference)
    if exponent > -900:
        scaled = compare(np.ldexp(x, exponent), np.ldexp(reference, exponent))
        assert (scaled.rms_ratio, scaled.worst_share) == (plain.rms_ratio, plain.worst_share)
    assert rms(np.ldexp(np.ones(4), exponent)) == 2.0**exponent


def test_rms_and_ratio_at_their_edges():
    assert rms(np.zeros(0)) == 0 and rms(np.array([3.0, -4.0])) == np.sqrt(12.5)
    assert ratio(0.0, 0.0) == 0 and ratio(1.0, 0.0) == np.inf
