"""The verdict on `same_algorithm` in a bundle's manifest: of a proof, and of a schedule that is wrong."""

from __future__ import annotations

import pytest

from kdsl.bundle.load import load_bundle
from kdsl.driver import ContractFailed, build
from kdsl.prove.forms import plan_of_form

from .conftest import edited, form_of

CHUNK = "kda.chunk_forward"
FORM, OPTIONS = {"decay": "pairwise", "chain": "split"}, {"gate": "precomputed"}


def plan_with(edits):
    library = edited(CHUNK, edits)
    return plan_of_form(library, form_of(library, CHUNK, FORM, OPTIONS))


def test_a_bundle_carries_its_proof(tmp_path):
    plan = plan_with([])
    (verdict,) = load_bundle(build([plan], tmp_path / "right.kdsb", proved=True)).manifest.variants[0].verdicts
    assert verdict.proves and verdict.clause == "same_algorithm" and "equal in" in verdict.found
    assert load_bundle(build([plan], tmp_path / "unasked.kdsb")).manifest.variants[0].verdicts == ()


def test_what_is_proved_wrong_is_not_written(tmp_path):
    plan = plan_with([("initial_state[n, h, d, e]", "initial_state[n, 0, d, e]")])
    assert build([plan], tmp_path / "unasked.kdsb").is_dir()
    with pytest.raises(ContractFailed, match=r"same_algorithm.*fails \(field\).*stage `state_load`"):
        build([plan], tmp_path / "wrong.kdsb", proved=True)
    assert not (tmp_path / "wrong.kdsb").exists()
