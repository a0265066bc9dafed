"""Every shipped CUDA rule as generated, run on the CPU against the oracle; what is wrong with one is seen.

Calls have tails, an empty sequence, several sequences and initial states; over the settings they have both layouts
of the states, more value heads than heads, strided inputs and f16.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import pytest
from attrs import evolve, frozen

from kdsl.driver.emulation import LoweredProgram
from kdsl.emulate import calls
from kdsl.emulate.program import Bound, try_program, values
from kdsl.emulate.run import emulate
from kdsl.lower.lowering import Lowering
from kdsl.validate.acceptance import acceptance
from kdsl.validate.call import reference
from tests.mutation.barriers import keeps_nothing_apart

from ..workshop import NOT_SHIPPED, library_with, plan, shipped

TARGET = "sm_90a"
ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True}
F16 = dict.fromkeys(("q", "k", "v", "g", "beta"), "f16")
SEVERAL = (70, 0, 1, 69)
ALIGNED = 64  # bytes: what rules that copy 16 bytes at a time may ask of a tensor


@lru_cache(maxsize=4)
def program(rule: str, **settings: object) -> LoweredProgram:
    options = {name: value for name, value in settings.items() if name not in F16}
    dtypes = {name: value for name, value in settings.items() if name in F16}
    library = library_with(rule)
    target = TARGET if TARGET in library.rules[rule].targets else library.rules[rule].targets[0]
    return LoweredProgram(Lowering(plan(library, rule, dtypes=dtypes, target=target, **options)))


def wider(array: np.ndarray) -> np.ndarray:
    """The same values as a slice of a wider projection, heads before tokens: rows neither dense nor in order."""
    batch, tokens, heads, width = array.shape
    memory = np.zeros(batch * heads * tokens * (width + 32) * array.itemsize + ALIGNED, np.uint8)
    start = -memory.ctypes.data % ALIGNED
    whole = memory[start : memory.size - ALIGNED + start].view(array.dtype)
    found = whole.reshape(batch, heads, tokens, width + 32).transpose(0, 2, 1, 3)[..., :width]
    found[...] = array
    assert not found.flags["C_CONTIGUOUS"] and np.array_equal(found, array)
    return found


def drawn(made: LoweredProgram, seed: int, lengths=SEVERAL, strided: bool = False, **sizes: int):
    rng, sizes = np.random.default_rng(seed), {**calls.SIZES, **sizes}
    if made.operator == "kda.decode":
        call = calls.decode_call(rng, sizes, made.settings)
    else:
        call = calls.chunk_call(rng, sizes, lengths, made.settings)
    return {**call, **({name: wider(call[name]) for name in ("q", "k", "v", "g")} if strided else {})}


@pytest.mark.parametrize(("rule", "settings", "call"), [
    ("mma_bounded", {"gate": "bounded", **ON}, {}),
    ("mma_bounded", {"gate": "bounded", "state_v_first": True, **ON}, {"HV": 4, "strided": True}),
    ("mma_bounded", {"gate": "bounded", **F16}, {"lengths": (16, 0, 33)}),
    ("mma_few_heads", {"gate": "bounded", **ON}, {"lengths": (300, 0, 1, 37)}),
    ("mma_few_heads", {"gate": "bounded", "state_v_first": True, **ON}, {"HV": 4, "strided": True}),
    ("mma_few_heads", {"gate": "bounded", **F16}, {"lengths": (16, 0, 33)}),
    ("mma_bounded", {"gate": "bounded", **ON}, {"lengths": (0, 0, *range(1, 18), 0), "H": 1}),
    ("mma_bounded", {"gate": "bounded", **ON}, {"lengths": None, "B": 3, "T": 21, "H": 1}),
    ("wgmma_bounded", {"gate": "bounded", **ON}, {}),
    ("wgmma_bounded", {"gate": "bounded", "state_v_first": True, **ON}, {"HV": 4, "strided": True}),
    ("wgmma_bounded", {"gate": "bounded", **F16}, {"lengths": (16, 0, 33)}),
    ("wgmma_fused", {"gate": "bounded", **ON}, {}),
    ("wgmma_fused", {"gate": "bounded", "state_v_first": True, **ON}, {"HV": 4, "strided": True}),
    ("wgmma_fused_f32", {"gate": "bounded", "g": "f32", **ON}, {}),
    ("mma_fused", {"gate": "bounded", **ON}, {}),
    ("mma_beside", {"gate": "bounded", **ON}, {}),
    ("mma_fused", {"gate": "bounded", "state_v_first": True, **ON}, {"HV": 4, "strided": True}),
    ("mma_fused", {"gate": "bounded", **F16}, {"lengths": (16, 0, 33)}),
    ("mma_fused", {"gate": "bounded", **ON}, {"lengths": (0, 0, *range(1, 18), 0), "H": 1}),
    ("mma_any_gate", {"gate": "softplus", **ON}, {}),
    ("mma_any_gate", {"gate": "precomputed", "state_v_first": True, **F16}, {"HV": 4, "strided": True}),
    ("lane_columns", {"gate": "bounded", **ON}, {"N": 4, "T": 3}),
    ("lane_columns", {"gate": "softplus", "state_v_first": True, **ON}, {"HV": 4, "strided": True}),
    ("lane_columns", {"gate": "precomputed", **F16}, {"N": 1}),
], ids=lambda value: "-".join(str(x) for x in value.values()) if isinstance(value, dict) else value)  # fmt: skip
def test_a_shipped_rule_computes_its_operator(rule, settings, call):
    made = program(rule, **settings)
    trial = try_program(made, drawn(made, 11, **call), target=made.lowering.plan.target.name, seed=5)
    assert trial.verdict == "pass", trial.explain()


def with_lengths_from(call, cu_seqlens):
    return {**call, "cu_seqlens": np.array(cu_seqlens, np.int64)}


@pytest.mark.parametrize(("rule", "gate"), [("mma_bounded", "bounded"), ("mma_any_gate", "softplus")])
def test_boundaries_beyond_the_tokens_are_brought_into_range(rule, gate):
    made = program(rule, gate=gate, **ON)
    call = drawn(made, 13, (20, 0, 17), H=1)
    bound = made.bind(with_lengths_from(call, (-(2**40), 20, 20, 2**40)))
    seen = emulate(bound.launches, target=TARGET, seed=4)
    assert seen.verdict == "pass", seen.explain()
    result = acceptance(values(bound.o), values(bound.state), *reference(call))
    assert result.accepted, result.explain()


@pytest.mark.parametrize("cu_seqlens", [(5, 30, 10, 37), (37, 0, 37, 0), (2**62, -(2**62), 9, 37)], ids=str)
def test_boundaries_that_make_no_sense_touch_nothing_outside(cu_seqlens):
    """Which tokens they name is nobody's business; the public function does not let them come this far."""
    made = program("mma_bounded", gate="bounded", **ON)
    bound = made.bind(with_lengths_from(drawn(made, 14, (20, 0, 17), H=1), cu_seqlens))
    seen = emulate(bound.launches, target=TARGET, seed=4)
    assert seen.refusal is None
    assert {found.kind for found in seen.findings} <= {"unwritten", "uninitialised", "race"}, seen.explain()


def test_every_cuda_rule_is_tried():
    tried = {mark.args[1][i][0] for mark in test_a_shipped_rule_computes_its_operator.pytestmark
             for i in range(len(mark.args[1]))}  # fmt: skip
    families = {name: target.family for name, target in shipped().targets.items()}
    cuda = {r.name for r in shipped().rules.values() if any(families[target] == "cuda" for target in r.targets)}
    assert tried == cuda | set(NOT_SHIPPED)


# ---- what has to be rejected

KERNELS = {"prepare": 0, "recurrence": 1}
WAIT = re.compile(r"^ *tvm_builtin_ptx_cp_async_wait_group_\w+\(\);$", re.MULTILINE)
BARRIER = re.compile(r"__syncthreads\(\);")
ROW = re.compile(r"(?<=, )\d+(?=\);$)", re.MULTILINE)  # elements from row to row of a product's matrix in shared memory
PIECE = re.compile(r"\(lane >> 4\) \* 8\b")  # which 16 bytes of its row a lane names to ldmatrix


@frozen
class Changed:
    """A program with one place of one kernel's text replaced."""

    whole: LoweredProgram
    kernel: str
    place: tuple[int, int]
    text: str

    @property
    def operator(self) -> str:
        return self.whole.operator

    def bind(self, call) -> Bound:
        bound, number = self.whole.bind(call), KERNELS[self.kernel]
        launches = list(bound.launches)
        source, (start, end) = launches[number].source, self.place
        launches[number] = evolve(launches[number], source=source[:start] + self.text + source[end:])
        return evolve(bound, launches=tuple(launches))


def text_of(kernel: str) -> str:
    return program("mma_bounded", gate="bounded", **ON).lowering.sources[KERNELS[kernel]].source


def places(pattern: re.Pattern, kernel: str) -> list[tuple[int, int]]:
    return [found.span() for found in pattern.finditer(text_of(kernel))]


def trial_of(kernel: str, place: tuple[int, int], text: str):
    made = program("mma_bounded", gate="bounded", **ON)
    call = drawn(made, 12, (37, 0, 20), H=1)
    return try_program(Changed(made, kernel, place, text), call, target=TARGET, seed=3)


def rejected(kernel: str, place: tuple[int, int], text: str, kinds: set[str]) -> None:
    """A finding of one of `kinds` says so; where there are none, wrong results alone do."""
    trial = trial_of(kernel, place, text)
    assert trial.verdict == "fail", trial.explain()
    if kinds:
        assert kinds & {finding.kind for finding in trial.emulation.findings}, trial.explain()
    else:
        assert not trial.emulation.findings and not trial.acceptance.accepted


def test_a_dropped_wait_is_rejected():
    (place,) = places(WAIT, "recurrence")
    rejected("recurrence", place, ";", {"unawaited"})


@pytest.mark.parametrize("kernel", KERNELS)
def test_dropped_barriers_are_rejected(kernel):
    """But those that no two threads need: by their addresses, counted without the emulator, one before a slot of the
    ring is filled anew, where a later barrier already stands behind all that read it, or one behind sums of squares,
    which the first lanes keep and read back themselves."""
    text, kept = text_of(kernel), []
    needed = [place for place in places(BARRIER, kernel) if not keeps_nothing_apart(text, place[0])]
    for place in needed:
        trial = trial_of(kernel, place, ";")
        kinds = {finding.kind for finding in trial.emulation.findings}
        if trial.verdict == "fail":
            assert kinds & {"race", "unawaited"}, trial.explain()
        else:
            kept.append((text[: place[0]].rstrip(), text[place[1] :].lstrip()))
    assert len(needed) - len(kept) >= 2 and len(kept) <= 1
    for before, after in kept:
        squares = before[before.rindex("__syncthreads") :].rstrip("} \n").splitlines()[-1]
        assert after.startswith("if ((c + 1) < ") or squares.lstrip().startswith("kdsl_squares_")


def test_rows_of_another_length_than_was_copied_are_rejected():
    text = text_of("recurrence")
    start, end = next(p for p in places(ROW, "recurrence") if "kdsl_mma" in text[text.rindex("\n", 0, p[0]) : p[0]])
    rejected("recurrence", (start, end), str(int(text[start:end]) - 8), set())  # of other rows, which are there too


def test_a_wrong_swizzle_is_rejected():
    """Lanes that name the neighbouring 16 bytes of their row: nothing is wrong but the result."""
    rejected("recurrence", places(PIECE, "recurrence")[0], "((lane >> 4) ^ 1) * 8", set())
