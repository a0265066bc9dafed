"""bfloat16 patterns: exact decoding, one rounding, ties to even, NaN kept."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdsl.validate import bfloat16
from kdsl.validate.errors import ArrayError

EVERY_PATTERN = np.arange(65536, dtype=np.uint16)
LARGEST = 0x7F7F


def test_every_pattern_survives_a_round_trip():
    values = bfloat16.decode(EVERY_PATTERN)
    nan = np.isnan(values)
    assert nan.sum() == 2 * 127
    for dtype in (np.float32, np.float64):
        with np.errstate(invalid="ignore"):  # signalling NaNs
            back = bfloat16.encode(values.astype(dtype))
        assert np.array_equal(back[~nan], EVERY_PATTERN[~nan])
        assert np.isnan(bfloat16.decode(back[nan])).all()


def test_a_nan_whose_payload_lies_in_the_lower_half_stays_nan_and_keeps_its_sign():
    bits = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32)
    patterns = bfloat16.encode(bits.view(np.float32))
    assert np.isnan(bfloat16.decode(patterns)).all()
    assert (patterns >> 15).tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("value", "nearest"),
    [
        (1 + 2**-8, 1.0),  # tie, even below
        (1 + 3 * 2**-8, 1 + 2**-6),  # tie, even above
        (1 + 2**-8 + 2**-40, 1 + 2**-7),  # above the tie only in float64: rounding twice would give 1
        (-(1 + 2**-8 + 2**-40), -(1 + 2**-7)),
        (1 + 3 * 2**-8 - 2**-40, 1 + 2**-7),
        (2.0**-134, 0.0),  # half of the smallest subnormal: tie to zero
        (2.0**-134 * (1 + 2**-50), 2.0**-133),
        (2.0**128 - 2.0**119, np.inf),
        (np.nextafter(2.0**128 - 2.0**119, 0), 2.0**128 - 2.0**120),
        (1e300, np.inf),
        (-1e300, -np.inf),
        (1e-300, 0.0),
    ],
)
def test_rounding_at_the_edges(value, nearest):
    assert bfloat16.rounded(np.array([value]))[0] == nearest


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_encoding_finds_the_nearest_pattern(value):
    pattern = int(bfloat16.encode(np.array([value]))[0])
    assert pattern >> 15 == int(np.signbit(value))
    magnitude, exact = pattern & 0x7FFF, abs(Fraction(value))

    def number(p: int) -> Fraction:
        if p > LARGEST:
            return Fraction(2) ** 128
        return Fraction(float(bfloat16.decode(np.array([p], np.uint16))[0]))

    error = abs(number(magnitude) - exact) if exact < 2**128 else Fraction(0)
    if exact >= 2**128:
        assert magnitude == LARGEST + 1
    for other in (magnitude - 1, magnitude + 1):
        if 0 <= other <= LARGEST + 1 and exact < 2**128:
            distance = abs(number(other) - exact)
            assert error < distance or (error == distance and magnitude % 2 == 0)


def test_shapes_are_kept_even_without_elements_or_axes():
    for shape in ((), (0,), (2, 0, 3), (2, 3)):
        assert bfloat16.encode(np.ones(shape)).shape == shape
        assert bfloat16.decode(bfloat16.encode(np.ones(shape, np.float32))).shape == shape


def test_a_strided_view_is_read_by_its_elements():
    values = np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2]
    assert np.array_equal(bfloat16.decode(bfloat16.encode(values)), values)


def test_other_dtypes_are_refused_by_name():
    with pytest.raises(ArrayError, match="uint16"):
        bfloat16.decode(np.zeros(3, np.int16))
    with pytest.raises(ArrayError, match="int64"):
        bfloat16.encode(np.zeros(3, np.int64))
    with pytest.raises(ArrayError, match="beta.*int32"):
        bfloat16.values_of("beta", np.zeros(3, np.int32))
