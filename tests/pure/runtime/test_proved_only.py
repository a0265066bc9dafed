"""Calls that only take code with a proof: which bundles they refuse, what they ask the compiler for."""

from __future__ import annotations

import pytest
import torch

from kdsl import kda
from kdsl.bundle import manifest as m
from kdsl.kda import accept_proved_only, chunk_kda, use_bundle
from kdsl.runtime import NoVariant

pytestmark = pytest.mark.usefixtures("gcc")
OPTIONS = {
    "gate": "precomputed",
    "use_qk_l2norm_in_kernel": False,
    "use_beta_sigmoid_in_kernel": False,
    "allow_neg_eigval": False,
}
CLAUSE = "same_algorithm"
PROVED = m.Verdict(CLAUSE, "holds", "field", "equal in 16 trials on 5 shapes")
NO_PROOFS = {
    "no verdict": ((), "no verdict in its manifest"),
    "unknown": ((m.Verdict(CLAUSE, "unknown", "unknown"),), "unknown: undecided"),
    "by another evidence": ((m.Verdict(CLAUSE, "holds", "measured", "a few calls"),), "holds: a few calls"),
    "of another clause": ((m.Verdict("spills == 0", "holds", "field"),), "no verdict in its manifest"),
}


@pytest.fixture
def bundled(tmp_path, build_kda):
    """bundled(name, verdicts): a bundle whose manifest has these verdicts."""

    def build(name, verdicts):
        return build_kda(tmp_path / f"{name}.kdsb", "kda.chunk_forward", {}, OPTIONS, None, verdicts=verdicts)

    return build


@pytest.fixture(autouse=True)
def any_code_again(monkeypatch):
    monkeypatch.setattr(kda, "_compiler_installed", lambda: False)
    yield
    accept_proved_only(False)
    kda.forget_bundles()


def call():
    x = {n: torch.randn(1, 16, 2, 32) * 0.1 for n in ("q", "k", "v")}
    return chunk_kda(**x, g=-torch.rand(1, 16, 2, 32), beta=torch.rand(1, 16, 2))


@pytest.mark.parametrize("name", NO_PROOFS)
def test_code_without_a_proof_runs_only_where_any_may(bundled, name):
    verdicts, said = NO_PROOFS[name]
    use_bundle(bundled("some", verdicts))
    call()
    accept_proved_only()
    with pytest.raises(NoVariant) as refusal:
        call()
    assert f"not proved to compute kda.chunk_forward (same_algorithm: {said})" in str(refusal.value)
    accept_proved_only(False)
    call()


def test_a_proved_variant_is_taken_before_an_unproved_one(bundled):
    for name, verdicts in (("without", ()), ("with", (PROVED,))):
        use_bundle(bundled(name, verdicts))
    accept_proved_only()
    call()


def test_the_environment_asks_for_the_same(bundled, monkeypatch):
    use_bundle(bundled("without", ()))
    monkeypatch.setenv("KDSL_PROVED", "0")
    call()
    monkeypatch.setenv("KDSL_PROVED", "1")
    with pytest.raises(NoVariant, match="not proved"):
        call()


def test_the_compiler_is_asked_for_a_proof_and_held_to_it(compiler, bundled, monkeypatch):
    asked, unproved, proved = [], bundled("without", ()), bundled("with", (PROVED,))

    def bundle_for(request, proved_asked=False, **options):
        asked.append(options)
        return unproved if len(asked) < 2 else proved

    monkeypatch.setattr(kda, "_compiler_installed", lambda: True)
    monkeypatch.setattr(compiler, "bundle_for", bundle_for)
    accept_proved_only()
    with pytest.raises(NoVariant, match="`kdsl prove RULE` says what is missing"):
        call()
    call()
    assert asked == [{"proved": True}, {"proved": True}]
