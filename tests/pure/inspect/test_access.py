"""From an index to the worst conflict over its variables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdsl.inspect import banks
from kdsl.inspect.access import MOST_POINTS, NoIndex, SharedAccess, addresses, index, judge, lane_index
from kdsl.source.diagnostic import Evidence

# As the generated CUDA computes the rows of an ldmatrix.x4 of 16 x 16 elements of two bytes.
ROWS = "((((int)threadIdx.x) >> 4) * 8 + (threadIdx.x & 7)) * {row} + ((threadIdx.x >> 3) & 1) * 8 + k * 16"


def matrix(row: int) -> SharedAccess:
    return SharedAccess("k_tile", "ldmatrix", lane_index(ROWS.format(row=row), 2), variables={"k": range(8)})


def test_generated_indices_are_read():
    found = index("(((int)threadIdx.x) / 2 * 24) + ((unsigned int)threadIdx.x % 2) * 8 + (c << 1)")
    assert found.names == ("threadIdx_x", "c")
    assert found.at({"threadIdx_x": 7, "c": 5}) == 3 * 24 + 8 + 10


@pytest.mark.parametrize(
    "text", ["f(lane)", "lane +", "lane if a else b", "lane * 1.5", "x[lane]", "lane ** 2"]
)
def test_other_text_is_no_index(text):
    with pytest.raises(NoIndex):
        index(text)


def test_division_of_negatives_is_refused():
    with pytest.raises(NoIndex, match="divides"):
        index("(lane - 5) / 2").at({"lane": 1})
    with pytest.raises(NoIndex):
        index("lane % zero").at({"lane": 1, "zero": 0})


@given(st.integers(1, 300), st.integers(0, 7), st.integers(1, 64), st.integers(0, 255))
def test_affine_text_and_function_agree(stride, shift, modulus, offset):
    text = index(f"((lane >> {shift}) * {stride} + lane % {modulus} + {offset} ^ 3) * 4")
    function = SharedAccess("a", "ld", lambda n: (((n >> shift) * stride + n % modulus + offset) ^ 3) * 4)
    assert addresses(SharedAccess("a", "ld", text), {}) == addresses(function, {})


@pytest.mark.parametrize("row, degree", [(136, 1), (128, 8), (64, 8), (32, 4), (16, 2), (24, 1)])
def test_rows_of_a_matrix(row, degree):
    found = judge(matrix(row))
    assert found.degree == degree and found.evidence is Evidence.SIMULATED


def test_the_worst_values_are_named():
    found = judge(SharedAccess("u", "st", index("lane * step * 4"), 4, variables={"step": (1, 3, 8, 5)}))
    assert (found.degree, dict(found.at)) == (8, {"step": 8})


@pytest.mark.parametrize("ways", [2, 4, 8])
def test_conflicts_of_each_degree_are_found(ways):
    assert judge(SharedAccess("x", "ld", index(f"lane * {4 * ways}"), 4)).degree == ways


def test_bases_shift_a_swizzle():
    plain = SharedAccess(
        "s", "ldmatrix", lambda lane: banks.swizzled(128 * (lane % 16) + 16 * (lane // 16), 128)
    )
    assert judge(plain).degree == 1
    # A tile that starts in the middle of the pattern still takes eight different pieces.
    moved = SharedAccess("s", "ldmatrix", lambda lane: banks.swizzled(512 + 128 * (lane % 8), 128))
    assert judge(moved).degree == 1


def test_inactive_lanes_do_not_count():
    assert judge(SharedAccess("x", "st", index("lane * 128"), 4, active=0xF)).degree == 4


@pytest.mark.parametrize("kind", ["wgmma", "tma", "cp.async.bulk", "tcgen05.mma"])
def test_descriptors_are_unknown(kind):
    found = judge(SharedAccess("x", kind, index("lane * 4")))
    assert found.wavefronts is None and found.degree is None and found.evidence is Evidence.UNKNOWN


def test_what_cannot_be_tried_is_unknown():
    many = SharedAccess("x", "ld", index("lane * 4 + t * 4"), variables={"t": range(MOST_POINTS + 1)})
    assert judge(many).evidence is Evidence.UNKNOWN
    assert "warp" in judge(SharedAccess("x", "ld", index("lane * 4 + warp"))).note
    assert "no multiple" in judge(SharedAccess("x", "ld", index("lane * 4"), 16)).note
    assert judge(SharedAccess("x", "ld", index("lane * 4"), variables={"t": ()})).evidence is Evidence.UNKNOWN
