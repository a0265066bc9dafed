"""Kernels of one launch: proved one after the other over the schedule, side by side over the text, and told from
wrong ones."""

from __future__ import annotations

import re
from functools import lru_cache

import pytest
from attrs import evolve

from kdsl.data import data_root
from kdsl.driver.threads import device_program, prove_rule_threads
from kdsl.lower.lowering import Lowering
from kdsl.prove.lowered import LINKED, prove
from kdsl.prove.proof import BOUND, FIELD, REJECTED

from ..workshop import library_of, library_with, plan

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}
TOKENS = {"T": 100}  # seven chunks: slots of a ring of four are used again


@lru_cache(maxsize=1)
def lowering() -> Lowering:
    return Lowering(plan(library_with("mma_beside"), "mma_beside", target="sm_90a", **ON))


def test_the_schedule_is_proved_one_kernel_after_the_other():
    proof = prove(lowering())
    assert proof.proved and proof.bound <= BOUND, proof.found
    assert LINKED in proof.assumptions


def wrong(folder, old: str, new: str) -> Lowering:
    """mma_beside for an operator with another stage."""
    text = (data_root() / "stdlib/operators/kda.chunk_forward.kds").read_text(encoding="utf-8")
    assert text.count(old) == 1, text.count(old)
    text = re.sub(r"\bkda\.(chunk_forward|acceptance)", r"own.\1", text.replace(old, new))
    rule = library_with("mma_beside").rules["mma_beside"].declaration.span.text.replace("kda.", "own.")
    return Lowering(plan(library_of(folder, f"{text}\n{rule}"), "mma_beside", target="sm_90a", **ON))


@pytest.mark.parametrize("old, new, stage", [
    ("q_decayed[i, d] = qn[i, d] * exp2(gc[i, d])", "q_decayed[i, d] = qn[i, d]", "decay_q"),  # of `prepare`
    ("if j <= i then m_raw[i, j] else 0.0", "if j < i then m_raw[i, j] else 0.0", "mask_qk"),
    ("o_sum[j, e] = o_state[j, e] + sum", "o_sum[j, e] = sum", "within"),  # of `recurrence`
])  # fmt: skip
def test_a_wrong_stage_is_rejected(tmp_path, old, new, stage):
    made = wrong(tmp_path, old, new)
    assert any(planned.name == stage for kernel in made.plan.kernels for planned in kernel.stages)
    proof = prove(made, TOKENS, 1, fresh=True)
    assert proof.verdict == REJECTED, proof.found


def test_the_text_is_proved_with_both_side_by_side():
    proof = prove_rule_threads(lowering(), TOKENS, seed=5)
    assert proof.verdict == FIELD and LINKED not in proof.assumptions, proof.found


def changed(pattern: str, new: str):
    """The launch with one place of its text changed."""
    whole = device_program(lowering())
    (kernel,) = whole.kernels
    text, count = re.subn(pattern, new, kernel.source, flags=re.MULTILINE)
    assert count == 1 and text != kernel.source, count
    return evolve(whole, kernels=(evolve(kernel, source=text),))


@pytest.mark.parametrize("pattern, new", [
    (r"^ *kdsl_slot_wait\(kdsl_full[^\n]*;\n", ""),
    (r"^ *kdsl_slot_wait\(kdsl_empty[^\n]*;\n", ""),
    (r"^ *kdsl_slot_say\(kdsl_full[^\n]*;\n", ""),
    (r"^ *kdsl_slot_say\(kdsl_empty[^\n]*;\n", ""),
    (r"(kdsl_slot_wait\(kdsl_full, .*?\)), (.*)\);$", r"\1, (\2) + 1);"),
    (r"(kdsl_slot_init\(kdsl_empty \+ threadIdx.x), \d+\)", r"\1, 1)"),
])  # fmt: skip
def test_a_wrong_word_is_rejected(pattern, new):
    proof = prove_rule_threads(lowering(), TOKENS, 1, seed=3, program=changed(pattern, new))
    assert proof.verdict == REJECTED, proof.found
