"""Loads a step ahead on the emulator: the values of each step as generated, and told from those of another step."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import pytest

from kdsl.driver.emulation import LoweredProgram
from kdsl.emulate import calls
from kdsl.emulate.program import try_program
from kdsl.lower.lowering import Lowering

from ..workshop import change_launches, library_of, library_with, plan, shipped

TARGET = "sm_90a"
FLAGS = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True}
LENGTHS = (70, 0, 1, 200)  # ends within a chunk, no token, fewer chunks than groups, a fourth step


@lru_cache(maxsize=4)
def lowering(rule: str = "wgmma_fused", plain: bool = False, **dtypes: str) -> Lowering:
    flags = {} if plain else FLAGS
    return Lowering(plan(shipped(), rule, dtypes=dtypes, target=TARGET, gate="bounded", **flags))


def tried(monkeypatch, made: Lowering, change=lambda text: text, lengths=LENGTHS):
    """What the emulator says of a call, with the launch's text changed."""
    program = LoweredProgram(made)
    change_launches(monkeypatch, lambda _, text: change(text))
    call = calls.chunk_call(np.random.default_rng(11), calls.SIZES, lengths, program.settings)
    return try_program(program, call, target=TARGET, seed=5)


@pytest.mark.parametrize("rule, plain, dtypes", [
    ("wgmma_fused", False, {"q": "bf16", "g": "bf16", "beta": "bf16"}),
    ("wgmma_fused", True, {"q": "f16", "g": "f16", "beta": "f16"}),
    ("wgmma_fused_f32", False, {"q": "bf16", "g": "f32", "beta": "f32"}),
])  # fmt: skip
def test_as_generated(monkeypatch, rule, plain, dtypes):
    trial = tried(monkeypatch, lowering(rule, plain, **dtypes))
    assert trial.verdict == "pass" and not trial.emulation.findings, trial.explain()


@pytest.mark.parametrize("lengths", [(0,), (1,), (16,), (64, 64), (65, 15, 129)])
def test_lengths(monkeypatch, lengths):
    trial = tried(monkeypatch, lowering(), lengths=lengths)
    assert trial.verdict == "pass" and not trial.emulation.findings, trial.explain()


def test_a_tile_of_rows(monkeypatch, tmp_path):
    """The gates of mma_beside, two channels to a lane."""
    text = library_with("mma_beside").rules["mma_beside"].declaration.span.text
    copied = "qx, kx, gx                       : in shared"
    assert copied in text
    loaded = "gx : in registers lanes d by 2 ring 2 via ld.global"
    text = text.replace(copied, f"{loaded}\n      {copied.replace(', gx', '')}")
    made = Lowering(plan(library_of(tmp_path, text), "mma_beside", target=TARGET, gate="bounded", **FLAGS))
    trial = tried(monkeypatch, made)
    assert trial.verdict == "pass" and not trial.emulation.findings, trial.explain()


END = r"if \([^;\n]*left_0_ptr[^;\n]*\) \{\n( +condval_\d+ = beta_ptr\[at_)"  # of the sequence


@pytest.mark.parametrize("pattern, new", [
    (r"\(float\)bx_local_ptr\[0\]", "(float)bx_next_local_ptr[0]"),  # the next step's, at once
    (r"^ *bx_local_ptr\[0\] = bx_next_local_ptr\[0\];\n", ""),  # the first step's, for good
    (r"beta_ptr\[(at_\d+_ptr\[0\])\]", r"beta_ptr[\1 - 64 * beta_stride1]"),  # this step's
    (r"beta_ptr\[(at_\d+_ptr\[0\])\]", r"beta_ptr[\1 - 48 * beta_stride1]"),  # that of the next group
])  # fmt: skip
def test_values_of_another_step_are_rejected(monkeypatch, pattern, new):
    trial = tried(monkeypatch, lowering(), lambda text: changed(text, pattern, new))
    assert trial.verdict == "fail", trial.explain()


def test_nothing_beyond_the_last_token_is_loaded(monkeypatch):
    """Without the sequence's end in its condition the load would go beyond the tensor."""
    trial = tried(monkeypatch, lowering(), lambda text: changed(text, END, r"if (true) {\n\1"))
    assert trial.verdict == "fail", trial.explain()
    assert {finding.kind for finding in trial.emulation.findings} == {"out_of_bounds"}, trial.explain()


def changed(text: str, pattern: str, new: str) -> str:
    found, count = re.subn(pattern, new, text, flags=re.MULTILINE)
    assert count == 1 and found != text, f"{count} times {pattern}"
    return found
