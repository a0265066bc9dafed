"""Wavefronts of shared accesses against banks that are served word by word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdsl.inspect import banks


def served(requests, width: int) -> int:
    """Brute force: in every wavefront each bank gives one word, to every lane that waits for it."""
    total = 0
    for request in requests:
        waiting = [{(address + byte) // 4 for byte in range(width)} for address in request]
        while any(waiting):
            total += 1
            given_by = {}
            for words in waiting:
                for word in sorted(words):
                    given_by.setdefault(word % 32, word)
            for words in waiting:
                words.difference_update(given_by.values())
    return total


def requests_of(addresses, width: int, active: int):
    """Half warps for 8 bytes, quarter warps for 16, written out."""
    bounds = {8: [(0, 16), (16, 32)], 16: [(0, 8), (8, 16), (16, 24), (24, 32)]}.get(width, [(0, 32)])
    return [[addresses[n] for n in range(low, high) if active >> n & 1] for low, high in bounds]


@st.composite
def warps(draw):
    width = draw(st.sampled_from(banks.WIDTHS))
    span = draw(st.sampled_from((4, 64, 4096)))
    places = draw(st.lists(st.integers(0, span - 1), min_size=32, max_size=32))
    mask = draw(st.one_of(st.just(banks.ALL), st.integers(0, banks.ALL)))
    return [place * width for place in places], width, mask


@given(warps())
def test_as_served_word_by_word(warp):
    addresses, width, mask = warp
    assert banks.wavefronts(addresses, width, mask).count == served(
        requests_of(addresses, width, mask), width
    )


@given(st.lists(st.integers(0, 2047), min_size=32, max_size=32), st.sampled_from((1, 2, 4)))
def test_matrices_as_served_word_by_word(rows, matrices):
    addresses = [16 * row for row in rows]
    groups = [addresses[8 * m : 8 * m + 8] for m in range(matrices)]
    assert banks.matrix_wavefronts(addresses, matrices).count == served(groups, 16)


@given(warps(), st.integers(0, 4095))
def test_a_base_of_whole_lines_changes_nothing(warp, lines):
    addresses, width, mask = warp
    moved = [address + 128 * lines for address in addresses]
    assert banks.wavefronts(moved, width, mask) == banks.wavefronts(addresses, width, mask)


@given(warps())
def test_never_below_the_ideal_and_pairing_never_costs(warp):
    addresses, width, mask = warp
    found = banks.wavefronts(addresses, width, mask)
    assert found.excess >= 0 and found.degree >= 1
    assert banks.wavefronts(addresses, width, mask, paired=True).count <= found.count


@pytest.mark.parametrize("ways", [1, 2, 4, 8, 16, 32])
def test_a_stride_of_words_conflicts_as_often(ways):
    found = banks.wavefronts([4 * ways * lane for lane in range(32)], 4)
    assert (found.count, found.ideal, found.degree) == (ways, 1, ways)


@pytest.mark.parametrize(
    "width, step, count, degree",
    [
        (16, 16, 4, 1), (16, 32, 8, 2), (16, 64, 16, 4), (16, 128, 32, 8),
        (8, 8, 2, 1), (8, 16, 4, 2), (8, 128, 32, 16),
        (2, 2, 1, 1), (1, 1, 1, 1), (2, 4, 1, 1), (2, 64, 16, 16), (4, 132, 1, 1),
    ],
)  # fmt: skip
def test_known_strides(width, step, count, degree):
    found = banks.wavefronts([step * lane for lane in range(32)], width)
    assert (found.count, found.degree) == (count, degree)


def test_broadcast_and_multicast_do_not_conflict():
    assert banks.wavefronts([64] * 32, 4).count == 1
    assert banks.wavefronts([128 * (lane // 16) + 4 * (lane % 2) for lane in range(32)], 4).count == 2
    assert banks.wavefronts([4 * (lane % 4) for lane in range(32)], 4).count == 1
    assert banks.wavefronts([2 * (lane ^ 1) for lane in range(32)], 2).count == 1  # halves of one word


def test_equal_pairs_of_wide_loads_share_a_request():
    assert banks.wavefronts([0] * 32, 16).count == 4
    assert banks.wavefronts([0] * 32, 16, paired=True).count == 2
    assert banks.wavefronts([8 * (lane // 2) for lane in range(32)], 8, paired=True).count == 1
    crossed = [8 * (lane // 4 * 2 + lane % 2) for lane in range(32)]
    assert banks.wavefronts(crossed, 8, paired=True).count == 1
    assert banks.wavefronts([8 * lane for lane in range(32)], 8, paired=True).count == 2


def test_masks_take_lanes_out():
    column = [128 * lane for lane in range(32)]
    assert banks.wavefronts(column, 4, 0b1011).count == 3
    assert banks.wavefronts(column, 4, 0).count == 0
    assert banks.wavefronts(column, 4, 0).degree == 1
    assert banks.wavefronts([1] * 31 + [0], 4, 1 << 31).count == 1  # an inactive lane may point anywhere


def test_rows_of_128_bytes_need_a_pad_or_a_swizzle():
    plain = [128 * (lane % 16) + 16 * (lane // 16) for lane in range(32)]
    assert banks.matrix_wavefronts(plain, 4).degree == 8
    padded = [banks.padded(lane % 16, 16 * (lane // 16), 128, 16) for lane in range(32)]
    assert banks.matrix_wavefronts(padded, 4).degree == 1
    assert banks.matrix_wavefronts([banks.swizzled(a, 128) for a in plain], 4).degree == 1
    assert banks.matrix_wavefronts([banks.swizzled(a, 64) for a in plain], 4).degree == 2
    assert banks.matrix_wavefronts([banks.swizzled(a, 32) for a in plain], 4).degree == 4


@pytest.mark.parametrize("span", [32, 64, 128])
def test_a_swizzle_permutes_the_pieces_of_eight_lines(span):
    pieces = range(0, 1024, 16)
    swapped = [banks.swizzled(piece, span) for piece in pieces]
    assert sorted(swapped) == list(pieces)
    assert all(a // span == b // span for a, b in zip(pieces, swapped, strict=True))
    assert banks.swizzled(5, span) == 5


def test_misaligned_lanes_are_named():
    with pytest.raises(banks.Misaligned) as caught:
        banks.wavefronts([0] * 7 + [8] + [0] * 24, 16)
    assert (caught.value.lane, caught.value.address) == (7, 8)
    with pytest.raises(banks.Misaligned):
        banks.matrix_wavefronts([4] * 8, 1)
