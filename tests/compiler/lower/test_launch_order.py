"""`order longest_first`: each sequence once, the longest first, and what has no longest."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess

import pytest

from kdsl.lower.lowering import Lowering
from kdsl.lower.tir.launch_order import RANKED_SOURCE
from kdsl.plan.refusal import PlanRefused
from kdsl.prove.lowered import in_any_order

from ..workshop import library_of, plan, rehearsed_with, shipped

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}
# The lanes of a warp as the iterations of loops: what each lane exchanges is there before any lane asks for it.
HOST = """\
static int steps_of[32], before_of[32];
int ranked(const int* lengths, int count, int rank) {
  if (count > 32) return rank;
  for (int lane = 0; lane < 32; ++lane) steps_of[lane] = lengths[lane < count ? lane : count - 1];
  unsigned ballot = 0;
  for (int lane = 0; lane < 32; ++lane) {
    int steps = steps_of[lane], before = 0;
    %s
    before_of[lane] = before;
    ballot |= (unsigned)(lane < count && before == rank) << lane;
  }
  return __builtin_popcount((ballot & -ballot) - 1);
}
"""


@pytest.fixture(scope="module")
def ranked(tmp_path_factory):
    """The comparison of the device function, lane by lane on this machine."""
    loop = re.search(r"for \(int other = 0.*?\n  \}", RANKED_SOURCE, re.DOTALL)[0]
    folder = tmp_path_factory.mktemp("ranked")
    (folder / "ranked.c").write_text(HOST % loop.replace("__shfl_sync(0xffffffffu, steps, other)", "steps_of[other]"))
    compiler = shutil.which("cc") or shutil.which("gcc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "r.so", folder / "ranked.c"], check=True)
    function = ctypes.CDLL(str(folder / "r.so")).ranked
    return lambda lengths, rank: function((ctypes.c_int * max(len(lengths), 1))(*lengths), len(lengths), rank)


@pytest.mark.parametrize("lengths", [
    (1,), (3, 3), (0, 0, 0), (82, 35, 128, 61, 17, 192), (5, 1, 5, 9, 1, 0, 9), tuple(range(32)), (7,) * 32,
])  # fmt: skip
def test_every_sequence_once_and_the_longest_first(ranked, lengths):
    order = [ranked(lengths, rank) for rank in range(len(lengths))]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[n] for n in order] == sorted(lengths, reverse=True)


def test_more_than_a_warp_has_lanes_go_in_their_own_order(ranked):
    assert [ranked(tuple(range(33)), rank) for rank in range(33)] == list(range(33))


def lowering() -> Lowering:
    return Lowering(plan(shipped(), "wgmma_fused", target="sm_90a", **ON))


@pytest.mark.parametrize("old, new", [
    (" || (theirs == steps && other < lane)", ""),  # two sequences of one length are both first
    ("before == rank", "before == rank + 1"),
    ("return __popc((found & -found) - 1)", "return rank / 2"),
])  # fmt: skip
def test_a_sequence_that_nobody_takes_is_seen(monkeypatch, old, new):
    assert not rehearsed_with(monkeypatch, lowering(), "recurrence", old, new).holds


def test_both_kernels_of_a_launch_take_the_same_sequence():
    (launch,) = lowering().sources
    assert len(re.findall(r"v_n_ptr\[0\] = kdsl_longest_first\(", launch.source)) == 2


def test_a_proof_takes_the_blocks_in_the_order_of_the_index():
    """Each of the values once, whichever block takes it: the prover's blocks take their own number."""
    (func,) = lowering().scheduled[1].module.functions.values()
    assert "kdsl_longest_first" in func.script() and "kdsl_longest_first" not in in_any_order(func).script()


TEXT = shipped().rules["mma_bounded"].declaration.span.text
GRID = re.search(r"grid \{ x : n; y : e by v_tile; z : h \}", TEXT)[0]


def test_axes_without_longer_values(tmp_path):
    library = library_of(tmp_path, TEXT.replace(GRID, GRID.replace("e by v_tile", "e by v_tile order longest_first")))
    with pytest.raises(PlanRefused) as caught:
        plan(library, "mma_bounded", target="sm_90a", **ON)
    assert (caught.value.code, caught.value.observed) == ("D365", "`e by 64`")


def test_other_indices_of_the_axis_go_inside(tmp_path):
    grid = GRID.replace("x : n; ", "x : n, h order longest_first; ").replace("; z : h", "")
    made = plan(library_of(tmp_path, TEXT.replace(GRID, grid)), "mma_bounded", target="sm_90a", **ON)
    (axis, loops), _ = made.kernels[1].grid
    assert axis == "x" and [(loop.index, loop.order) for loop in loops] == [("n", "longest_first"), ("h", None)]


def test_a_kernel_without_steps(tmp_path):
    old = re.search(r"grid \{ x : n, c packed; y : h \}", TEXT)[0]
    text = TEXT.replace(old, "grid { x : n, c packed; y : h order longest_first }")
    with pytest.raises(PlanRefused) as caught:
        plan(library_of(tmp_path, text), "mma_bounded", target="sm_90a", **ON)
    assert caught.value.code == "D365" and "takes no steps" in caught.value.observed
