"""Layouts, the bound, and what a proof says."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kdsl.prove.bound import MOST_TRIALS, trial_bound, trials_for, trials_of_all
from kdsl.prove.fields import TAINT
from kdsl.prove.layout import Layout
from kdsl.prove.proof import BOUND, FIELD, REJECTED, UNKNOWN, CaseProof, Difference, Proof
from kdsl.source.diagnostic import Evidence
from kdsl.source.span import SourceFile, Span


@pytest.mark.parametrize(
    ("order", "gap", "strides"),
    [(None, 0, (12, 4, 1)), (None, 2, (18, 6, 1)), ((0, 2, 1), 0, (12, 1, 3)), ((2, 0, 1), 1, (4, 1, 8))],
)
def test_strides(order, gap, strides):
    layout = Layout.of((2, 3, 4), order, gap)
    assert layout.strides == strides
    places = {
        sum(i * s for i, s in zip(index, strides, strict=False))
        for index in itertools.product(range(2), range(3), range(4))
    }
    assert set(layout.positions.reshape(-1).tolist()) == places and max(places) < layout.length


def test_storage_keeps_values_and_leaves_gaps_unwritten():
    layout = Layout.of((2, 3), gap=2)
    values = np.arange(6, dtype=np.uint64).reshape(2, 3)
    storage = layout.stored(values)
    assert np.array_equal(layout.read(storage), values) and (layout.gaps(storage) & TAINT).all()
    assert len(layout.gaps(storage)) == layout.length - 6


def test_strides_that_a_program_has_built_in():
    layout = Layout.bound((2, 3, 4, 5), (None, None, 5, 1), gap=3)
    assert layout.strides[2:] == (5, 1) and layout.strides[1] == 23
    assert layout.has((None, None, 5, 1)) and not layout.has((None, None, 6, 1))


def test_empty_tensors_have_a_place():
    assert Layout.of((0, 3), gap=1).length >= 1 and Layout.of(()).length == 1


@pytest.mark.parametrize("degree", [1, 662, 20000])
@pytest.mark.parametrize("depth", [1, 2, 4, 5])
def test_trials_reach_the_bound(degree, depth):
    bound = trial_bound(degree, 2, depth)
    assert bound ** trials_for(bound) <= BOUND
    assert trials_for(bound) == 1 or bound ** (trials_for(bound) - 1) > BOUND


def test_a_useless_bound_is_not_believed():
    assert trial_bound(1 << 30, 1, 5) == 1.0 and trials_for(1.0) == MOST_TRIALS


@pytest.mark.parametrize("p", [11, 23])
def test_the_lemma_on_small_fields(p):
    """Laurent polynomials with monomials of norm at most D vanish at no more than 2 D / |S| of the points."""
    points, rng = range(1, p), np.random.default_rng(p)
    for _ in range(40):
        norm = int(rng.integers(1, 3))
        monomials = [
            m for m in itertools.product(range(-norm, norm + 1), repeat=2) if sum(map(abs, m)) <= norm
        ]
        chosen = {monomials[i]: int(rng.integers(1, p)) for i in rng.integers(0, len(monomials), 3)}
        zeros = sum(
            sum(c * pow(x, a, p) * pow(y, b, p) for (a, b), c in chosen.items()) % p == 0
            for x in points
            for y in points
        )
        assert zeros <= 2 * norm / (p - 1) * (p - 1) ** 2


def test_what_a_proof_says():
    span = Span.whole(SourceFile("rule.kds", "rule a"))
    proof = Proof(FIELD, "a on cpu", (CaseProof("one token", {"T": 1}, 3, 10, 1e-21),) * 2)
    assert proof.proved and proof.bound == 2e-21 and proof.trials == 6 and proof.diagnostic(span) is None
    assert proof.document["evidence"] == "field" and "6 trials" in proof.found


def test_a_rejection_points_at_the_stage():
    span = Span.whole(SourceFile("rule.kds", "rule a"))
    difference = Difference("`m` is wrong", "a tail", "mask_qk", "m", {"i": 3, "j": 4}, "5", "6", span=span)
    proof = Proof(REJECTED, "a on cpu", difference=difference)
    found = proof.diagnostic(span)
    assert (
        found.code == "P101"
        and found.observed == "6"
        and found.required == "5"
        and found.label == "stage `mask_qk`"
    )
    assert proof.found == "stage `mask_qk`: `m` is wrong at i = 3, j = 4"
    assert proof.document["difference"]["rule"] == "rule.kds:1"


def test_unknown_is_never_a_pass():
    span = Span.whole(SourceFile("rule.kds", "rule a"))
    proof = Proof(UNKNOWN, "a", obstacle="Max looks at a value", remedy="use indices")
    assert not proof.proved and proof.diagnostic(span).evidence is Evidence.UNKNOWN
    assert proof.document["evidence"] is None


@pytest.mark.parametrize("bounds", [[2.27e-5, 2.29e-5, 6e-7, 6e-8], [1e-3, 1e-9], [0.4] * 3, [1e-30], [1e-5, 0.0]])
def test_all_calls_together_stay_below_the_bound(bounds):
    counts = trials_of_all(bounds, 4)
    together = sum(b**c for b, c in zip(bounds, counts))
    assert min(counts) >= 4 and (together <= BOUND or max(counts) == MOST_TRIALS)
    for number, count in enumerate(counts):  # none has a trial too many
        fewer = [c - (at == number) for at, c in enumerate(counts)]
        assert count == 4 or sum(b**c for b, c in zip(bounds, fewer)) > BOUND


def test_calls_that_no_number_of_trials_decides():
    assert trials_of_all([1.0, 1e-5], 4) == [MOST_TRIALS, 4]
