"""Code for a GPU that is wrong does not get into a bundle: it is run on the emulator first."""

from __future__ import annotations

import logging
import threading

import pytest
from attrs import evolve

from kdsl.bundle.load import read_bundle
from kdsl.driver import rehearsal
from kdsl.driver.compile import ContractFailed, build
from kdsl.driver.emulation import LoweredProgram
from kdsl.lower.lowering import Lowering

from ..workshop import library_of, plan, shipped

pytestmark = pytest.mark.usefixtures("compiler")


@pytest.fixture(scope="module")
def step():
    return plan(shipped(), "lane_columns", target="sm_90a", gate="bounded")


def with_text(monkeypatch, old: str, new: str) -> None:
    """The generated code with some of its text exchanged, as a compiler with a fault would have made it."""
    honest = LoweredProgram.launch

    def launch(self, kernel, source, *rest):
        assert old in source.source
        return honest(self, kernel, evolve(source, source=source.source.replace(old, new)), *rest)

    monkeypatch.setattr(LoweredProgram, "launch", launch)


def test_the_call_is_recorded(step, tmp_path):
    found = read_bundle(build([step], tmp_path / "step.kdsb")).manifest.variants[0].verdicts[-1]
    assert (found.clause, found.verdict, found.evidence) == (rehearsal.CLAUSE, "holds", "simulated")
    assert found.found.startswith("8 calls, ") and "of the reference's rms" in found.found


@pytest.mark.parametrize("old, new, said", [
    ("__syncthreads();", "", "slots: "), ("d_1_3 < 32", "d_1_3 < 31", "slots: final_state is rejected"),
    ("W == T", "false", "speculative: "), ("ssm_state_indices_given != 0", "true", "own slots: "),
])  # fmt: skip
def test_wrong_code_is_not_written(step, tmp_path, monkeypatch, old, new, said):
    with_text(monkeypatch, old, new)
    with pytest.raises(ContractFailed) as caught:
        build([step], tmp_path / "step.kdsb")
    assert rehearsal.CLAUSE in str(caught.value) and said in str(caught.value)
    assert not (tmp_path / "step.kdsb").exists()


def test_only_calls_that_the_rule_takes_are_tried(tmp_path):
    """One of the kinds has no sequence with a tail; a rule that takes no other one is not refused for its tails."""
    text = shipped().rules["mma_bounded"].declaration.span.text
    text = text.replace("    K == 128", "    T % 48 == 0 and given(cu_seqlens)\n    K == 128")
    strict = Lowering(plan(library_of(tmp_path, text), "mma_bounded", target="sm_90a", gate="bounded"))
    (verdict,) = rehearsal.rehearsed(strict)
    assert verdict.holds and verdict.found.startswith("1 calls, ")


@pytest.mark.parametrize("rule, gate, calls", [
    ("mma_bounded", "bounded", 11), ("mma_any_gate", "precomputed", 11), ("wgmma_fused", "bounded", 5),
])  # fmt: skip
def test_shipped_rules_pass_every_kind(rule, gate, calls):
    made = Lowering(plan(shipped(), rule, target="sm_90a", gate=gate, use_qk_l2norm_in_kernel=True))
    (verdict,) = rehearsal.rehearsed(made)
    assert verdict.holds and verdict.found.startswith(f"{calls} calls, "), verdict.found


def test_what_the_emulator_does_not_know_is_said(step, tmp_path, monkeypatch, caplog):
    with_text(monkeypatch, "__syncthreads();", "__nanosleep_of_another_kind(1); __syncthreads();")
    with caplog.at_level(logging.WARNING, "kdsl.driver"):
        path = build([step], tmp_path / "step.kdsb")
    assert "was not tried on the emulator" in caplog.text
    assert rehearsal.CLAUSE not in [v.clause for v in read_bundle(path).manifest.variants[0].verdicts]


def test_calls_are_reported_in_their_order(step, monkeypatch):
    """They run side by side: a later one that fails at once does not come before an earlier one that fails late."""
    late, names = threading.Event(), []

    def run(program, tried):
        names.append(tried.name)
        if len(names) == 1:
            return rehearsal.Rehearsal(tried.name)
        if tried.name == "slots outside":
            late.set()
        else:
            late.wait(5)
        return rehearsal.Rehearsal(tried.name, "wrong")

    monkeypatch.setattr(rehearsal, "run", run)
    monkeypatch.setenv("KDSL_THREADS", "8")
    (found,) = rehearsal.rehearsed(Lowering(step), 1)
    assert late.is_set() and found.found == "speculative: wrong"  # the second of them
