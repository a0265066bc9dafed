"""bfloat16 as NumPy sees it: uint16 bit patterns (sign, 8 exponent bits, 7 fraction bits).

NumPy has no bfloat16 type, so arrays of this format travel as uint16, the upper half of the float32 pattern.
"""

from __future__ import annotations

import numpy as np

from kdsl.validate.errors import ArrayError

QUIET_BIT = np.uint32(0x0040)


def encode(values: np.ndarray) -> np.ndarray:
    """Bit patterns (uint16, same shape) of the bfloat16 numbers nearest to `values`, ties to even.

    `values` is float16, float32 or float64. float64 is rounded once: it goes to float32 by rounding to odd,
    which leaves the second rounding unharmed (Boldo and Melquiond, "Emulation of FMA and correctly rounded
    sums", 2008). Magnitudes from 2^128 - 2^119 on become infinite, as IEEE 754 asks. A NaN stays a NaN of
    its sign: its quiet bit is set, so that cutting the payload cannot turn it into an infinity.
    """
    values = np.asarray(values)
    if values.dtype not in (np.float16, np.float32, np.float64):
        raise ArrayError("values", str(values.dtype), "float16, float32 or float64")
    single = _round_to_odd(values) if values.dtype == np.float64 else values.astype(np.float32)
    bits = np.ascontiguousarray(single).view(np.uint32).reshape(values.shape)
    upper = bits >> np.uint32(16)
    # At most 0x7F80FFFF + 0x8000 where finite or infinite: the sum cannot leave 32 bits.
    with np.errstate(over="ignore"):
        nearest = (bits + np.uint32(0x7FFF) + (upper & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(single), upper | QUIET_BIT, nearest).astype(np.uint16)


def decode(patterns: np.ndarray) -> np.ndarray:
    """The float32 values (exact, same shape) of bfloat16 bit patterns given as uint16."""
    patterns = np.asarray(patterns)
    if patterns.dtype != np.uint16:
        raise ArrayError("patterns", str(patterns.dtype), "uint16")
    widened = np.ascontiguousarray(patterns).astype(np.uint32) << np.uint32(16)
    return widened.view(np.float32).reshape(patterns.shape)


def rounded(values: np.ndarray) -> np.ndarray:
    """`values` rounded to bfloat16 precision, in the dtype they came in (float32 or float64)."""
    values = np.asarray(values)
    return decode(encode(values)).astype(values.dtype)


def values_of(name: str, array: np.ndarray | None, dtype: type = np.float64) -> np.ndarray:
    """`array` as a new contiguous array of `dtype`: uint16 is read as bfloat16 patterns, floats as they are.

    Raises ArrayError, naming `name`, for every other dtype: integers are never taken for numbers by accident.
    """
    array = np.asarray(array)
    if array.dtype == np.uint16:
        return decode(array).astype(dtype)
    if array.dtype in (np.float16, np.float32, np.float64):
        return np.array(array, dtype=dtype, order="C")
    expected = "float16, float32, float64, or uint16 holding bfloat16 patterns"
    raise ArrayError(name, str(array.dtype), expected)


def _round_to_odd(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        nearest = values.astype(np.float32)
        away = np.abs(nearest.astype(np.float64)) > np.abs(values)
        toward_zero = np.where(away, np.nextafter(nearest, np.float32(0)), nearest)
        inexact = toward_zero.astype(np.float64) != values
    bits = np.ascontiguousarray(toward_zero).view(np.uint32).reshape(values.shape)
    odd = bits | (inexact & ~np.isnan(values)).astype(np.uint32)
    return odd.view(np.float32)
