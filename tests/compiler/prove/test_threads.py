"""The device texts of the shipped CUDA rules on a fiber for each thread: proved as they are, rejected without a
barrier or a wait."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path

import pytest
from attrs import evolve
from click.testing import CliRunner

from kdsl.cli.prove import prove as command
from kdsl.driver.emulation import program
from kdsl.driver.threads import device_program, prove_rule_threads
from kdsl.prove.proof import FIELD, REJECTED, UNKNOWN

RULES = Path(__file__).resolve().parents[3] / "rules"
CHUNK, DECODE = "kda.chunk_forward/mma_bounded", "kda.decode/lane_columns"
BARRIER, WAIT = r"__syncthreads\(\);", r"tvm_builtin_ptx_cp_async_wait_group\w+\(\);"
OPTIONS = ("use_qk_l2norm_in_kernel", "use_beta_sigmoid_in_kernel", "state_v_first")


@lru_cache(maxsize=8)
def lowering(rule: str, **settings):
    return program(RULES / f"{rule}.kds", "sm_90a", settings).lowering


def places(source: str, pattern: str) -> list[tuple[int, int]]:
    """Of what the kernel itself says, not the helpers before it."""
    begin = source.index("__global__")
    return [found.span() for found in re.compile(pattern).finditer(source, begin)]


def edited(rule: str, kernel: int, change):
    """The rule's device program with the text of a kernel changed."""
    whole = device_program(lowering(rule))
    kernels = list(whole.kernels)
    kernels[kernel] = evolve(kernels[kernel], source=change(kernels[kernel].source))
    return evolve(whole, kernels=tuple(kernels))


def without(rule: str, kernel: int, pattern: str, number: int):
    def change(source: str) -> str:
        begin, end = places(source, pattern)[number]
        return source[:begin] + ";" + source[end:]

    return edited(rule, kernel, change)


def tried(rule: str, changed, tokens: int = 40):
    return prove_rule_threads(lowering(rule), {"T": tokens}, 1, seed=3, program=changed)


@pytest.mark.parametrize("rule, settings", [
    (CHUNK, {}),
    (CHUNK, dict.fromkeys(OPTIONS, "true")),
    (DECODE, {"gate": "softplus", **dict.fromkeys(OPTIONS, "true")}),
    (DECODE, {"gate": "precomputed"}),
])  # fmt: skip
def test_a_rule_is_proved_thread_by_thread(rule, settings):
    proof = prove_rule_threads(lowering(rule, **settings), seed=5)
    assert proof.verdict == FIELD, proof.found
    assert (proof.bound < 1e-18, proof.seed) == (True, 5)
    assert len(proof.cases) >= 4


def test_kernels_have_the_barriers_and_waits_that_are_dropped():
    sources = [kernel.source for kernel in device_program(lowering(CHUNK)).kernels]
    assert all(len(places(source, BARRIER)) >= 2 for source in sources)
    assert all(len(places(source, WAIT)) >= 1 for source in sources)


@pytest.mark.parametrize("kernel", [0, 1])
def test_a_dropped_barrier_is_rejected(kernel):
    proof = tried(CHUNK, without(CHUNK, kernel, BARRIER, 1))
    assert proof.verdict == REJECTED
    assert proof.difference.stage in {stage.name for k in lowering(CHUNK).plan.kernels for stage in k.stages}
    assert re.search(r"thread \(\d+, \d+, \d+\): .* of byte \d+ of shared memory", proof.difference.what)


@pytest.mark.parametrize("kernel", [0, 1])
def test_a_dropped_wait_is_rejected(kernel):
    proof = tried(CHUNK, without(CHUNK, kernel, WAIT, 0))
    assert (proof.verdict, proof.difference.what.partition(":")[0]) == (REJECTED, "unawaited")


def test_a_dropped_barrier_of_a_decoding_rule_is_rejected():
    proof = tried(DECODE, without(DECODE, 0, BARRIER, 1), tokens=2)
    assert proof.verdict == REJECTED


def test_a_wrong_index_of_the_text_is_rejected_with_both_values():
    """After the proving point of the schedule: only the text shows it."""
    changed = edited(DECODE, 0, lambda source: re.sub(r"\+ d_1_1\) \+ (\d+)\)\]", r"+ 31 - d_1_1) + \1)]", source))
    proof = tried(DECODE, changed, tokens=1)
    assert proof.verdict == REJECTED
    found = proof.difference
    assert found.expected.isdigit() and found.found.isdigit() and found.expected != found.found


def test_a_function_without_meaning_is_unknown_by_name():
    changed = edited(DECODE, 0, lambda source: source.replace("expf(", "sinf("))
    proof = tried(DECODE, changed, tokens=1)
    assert (proof.verdict, "sinf" in proof.obstacle) == (UNKNOWN, True)


def test_the_command_proves_cuda_texts_with_threads():
    rule = str(RULES / f"{DECODE}.kds")
    arguments = [rule, "--target", "sm_90a", "--threads", "--points", "default", "--set", "gate=precomputed",
                 "--shape", "T=1", "--seed", "11", "--format", "json"]  # fmt: skip
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 0, done.output
    proofs = json.loads(done.stdout)["proofs"]
    assert len(proofs) == 2  # the options that a rule takes, each value once
    assert all((p["verdict"], p["seed"], p["recalled"]) == ("field", 11, False) for p in proofs)


def test_the_command_says_where_there_is_no_cuda_rule():
    done = CliRunner().invoke(command, [str(RULES / "kda.decode/cpu_stream.kds"), "--threads"])
    assert done.exit_code == 2
    assert "no CUDA rule" in done.output
