"""Code for a GPU that is wrong does not get into a bundle: it is run on the emulator first."""

from __future__ import annotations

import logging

import pytest
from attrs import evolve

from kdsl.bundle.load import read_bundle
from kdsl.driver import rehearsal
from kdsl.driver.compile import ContractFailed, build
from kdsl.driver.emulation import LoweredProgram

from ..workshop import plan, shipped

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
    assert "of the reference's rms" in found.found


@pytest.mark.parametrize("old, new, said", [
    ("__syncthreads();", "", "which nothing has written"), ("d_5 < 128", "d_5 < 127", "final_state is rejected"),
])  # fmt: skip
def test_wrong_code_is_not_written(step, tmp_path, monkeypatch, old, new, said):
    with_text(monkeypatch, old, new)
    with pytest.raises(ContractFailed) as caught:
        build([step], tmp_path / "step.kdsb")
    assert rehearsal.CLAUSE in str(caught.value) and said in str(caught.value)
    assert not (tmp_path / "step.kdsb").exists()


def test_what_the_emulator_does_not_know_is_said(step, tmp_path, monkeypatch, caplog):
    with_text(monkeypatch, "__syncthreads();", "__nanosleep_of_another_kind(1); __syncthreads();")
    with caplog.at_level(logging.WARNING, "kdsl.driver"):
        path = build([step], tmp_path / "step.kdsb")
    assert "was not tried on the emulator" in caplog.text
    assert rehearsal.CLAUSE not in [v.clause for v in read_bundle(path).manifest.variants[0].verdicts]
