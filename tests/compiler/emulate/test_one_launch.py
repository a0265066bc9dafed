"""Kernels of one launch on the emulator: free of races as generated, and seen where a word about a slot is wrong."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import pytest
from attrs import evolve

from kdsl.driver.emulation import LoweredProgram
from kdsl.emulate import calls
from kdsl.emulate.program import try_program
from kdsl.lower.lowering import Lowering

from ..workshop import library_with, plan

TARGET = "sm_90a"
ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}


@lru_cache(maxsize=1)
def lowering() -> Lowering:
    return Lowering(plan(library_with("mma_beside"), "mma_beside", target=TARGET, **ON))


def tried(monkeypatch, change=lambda text: text):
    """What the emulator says of a call of four sequences, with the launch's text changed."""
    program, honest = LoweredProgram(lowering()), LoweredProgram.launch

    def launch(self, kernel, source, *rest):
        return honest(self, kernel, evolve(source, source=change(source.source)), *rest)

    monkeypatch.setattr(LoweredProgram, "launch", launch)
    call = calls.chunk_call(np.random.default_rng(11), calls.SIZES, (70, 0, 1, 200), program.settings)
    return try_program(program, call, target=TARGET, seed=5)


def kinds(monkeypatch, pattern: str, new: str) -> set[str]:
    def change(text: str) -> str:
        changed, count = re.subn(pattern, new, text, flags=re.MULTILINE)
        assert count == 1 and changed != text, f"{count} times {pattern}"
        return changed

    trial = tried(monkeypatch, change)
    assert trial.verdict == "fail", trial.explain()
    return {finding.kind for finding in trial.emulation.findings}


def test_as_generated(monkeypatch):
    trial = tried(monkeypatch)
    assert trial.verdict == "pass" and not trial.emulation.findings, trial.explain()


@pytest.mark.parametrize("word, kind", [
    (r"kdsl_slot_wait\(kdsl_full", "uninitialised"),  # slots are read before they are written
    (r"kdsl_slot_wait\(kdsl_empty", "race"),  # and written before they are read
    (r"kdsl_slot_say\(kdsl_full", "stuck"),
    (r"kdsl_slot_say\(kdsl_empty", "stuck"),
])  # fmt: skip
def test_each_word_is_needed(monkeypatch, word, kind):
    assert kind in kinds(monkeypatch, rf"^ *{word}[^\n]*;\n", "")


@pytest.mark.parametrize("pattern, new, kind", [
    (r'"r"\(phase & 1\)', '"r"(~phase & 1)', "uninitialised"),
    (r"(kdsl_slot_wait\(kdsl_empty, .*?), (\(.*\)) \+ 1\);", r"\1, \2);", "stuck"),  # the phase that was never full
    (r"(kdsl_slot_init\(kdsl_full \+ threadIdx.x), \d+\)", r"\1, 32)", "stuck"),  # one warp of two: phases run away
    (r"(kdsl_slot_init\(kdsl_full \+ threadIdx.x), \d+\)", r"\1, 96)", "stuck"),
    (r"(kdsl_slot_init\(kdsl_empty \+ threadIdx.x), \d+\)", r"\1, 128)", "stuck"),
    (r"^(  \}\n)  __syncthreads\(\);\n", r"\1", "uninitialised"),  # barriers in use before they are made
])  # fmt: skip
def test_phases_and_counts(monkeypatch, pattern, new, kind):
    assert kind in kinds(monkeypatch, pattern, new)


@pytest.mark.parametrize("threads, kind", [(32, "race"), (128, "stuck")])
def test_named_barriers_have_the_threads_of_their_warps(monkeypatch, threads, kind):
    """Those of a group of warps of `prepare`, which are 64."""

    def change(text: str) -> str:
        assert text.count("kdsl_warps_barrier(kdsl_barrier, 64)") >= 2
        return text.replace("kdsl_warps_barrier(kdsl_barrier, 64)", f"kdsl_warps_barrier(kdsl_barrier, {threads})")

    trial = tried(monkeypatch, change)
    assert trial.verdict == "fail" and kind in {finding.kind for finding in trial.emulation.findings}, trial.explain()


@pytest.mark.parametrize("pattern, new", [
    (r"2 \+ kdsl_group\b", "2"),  # one named barrier for all groups
    (r"\+ kdsl_group \* (\d+)", r"+ 0 * kdsl_group * \1"),  # one place for what groups keep to themselves
])
def test_groups_share_nothing(monkeypatch, pattern, new):
    assert "race" in kinds(monkeypatch, pattern, new)
