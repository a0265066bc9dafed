"""Wavefronts as the emulator counts them, against a count by hand from the addresses of the lanes."""

import numpy as np
import pytest

from kdsl.emulate.launches import Buffer
from kdsl.emulate.run import emulate

KERNEL = r"""
extern "C" __global__ void k(int* at, int* y) {
  __shared__ alignas(128) uchar tile[16384];
  int lane = (int)threadIdx.x;
  for (int i = 0; i < 128; ++i) {
    *(int4*)((int*)tile + (i * 32 + lane) * 4 % 4096) = make_int4(0, 0, 0, 0);
  }
  __syncthreads();
  if (at[lane] >= 0) {
    *(TYPE*)(tile + at[lane]);
    y[lane] = (int)((int*)(&VALUE))[0];
  }
}
"""
TYPES = {1: "uchar", 2: "ushort", 4: "int", 8: "int2", 16: "int4"}


def kernel(width: int) -> str:
    read = (
        f"    {TYPES[width]} value = *({TYPES[width]}*)(tile + at[lane]);\n    y[lane] = *(uchar*)(&value);\n"
    )
    head, _, tail = KERNEL.partition("    *(TYPE*)(tile + at[lane]);\n")
    return head + read + tail.partition("\n")[2]


def by_hand(addresses: np.ndarray, width: int) -> tuple[int, int]:
    """Phases of 32, 16 or 8 lanes: the words of the fullest bank, and the words in 32 banks evenly."""
    lanes = min(32, 128 // max(width, 4))
    found = ideal = 0
    for begin in range(0, 32, lanes):
        active = [a for a in addresses[begin : begin + lanes] if a >= 0]
        words = {word for a in active for word in range(a // 4, (a + width - 1) // 4 + 1)}
        banks = [sum(word % 32 == bank for word in words) for bank in range(32)]
        found, ideal = found + max(banks), ideal + -(-len(words) // 32)
    return found, ideal


def patterns(width: int):
    lane = np.arange(32)
    yield "in order", lane * width
    yield "one word", lane * 0
    yield "rows of 128 bytes", lane * 128
    yield "padded rows", lane * (128 + max(width, 4))
    yield "swizzled rows", lane * 128 + ((lane % 8) * 16 if width <= 16 else 0)
    yield "half of the lanes", np.where(lane % 2 == 0, lane * 64, -1)
    rng = np.random.default_rng(width)
    for number in range(3):
        yield f"random {number}", rng.integers(0, 4096 // width, 32) * width


@pytest.mark.parametrize("width", TYPES)
def test_loads(width):
    launches, expected = [], []
    for _, addresses in patterns(width):
        arguments = (Buffer(addresses.astype(np.int32), "input"), Buffer(np.zeros(32, np.int32), "updated"))
        launches.append((kernel(width), "k", (1, 1, 1), (32, 1, 1), 0, arguments))
        expected.append(by_hand(addresses, width))
    result = emulate(launches)
    assert result.verdict == "pass", result.explain()
    found = [(s.wavefronts, s.ideal) for s in result.shared if s.access == "load" and s.bytes == width]
    assert found == expected


def test_stores_of_a_row_are_free_of_conflicts():
    arguments = (Buffer(np.zeros(32, np.int32), "input"), Buffer(np.zeros(32, np.int32), "updated"))
    result = emulate([(kernel(4), "k", (1, 1, 1), (32, 1, 1), 0, arguments)])
    (store,) = (s for s in result.shared if s.access == "store")
    assert (store.instructions, store.wavefronts, store.ideal, store.conflict) == (128, 512, 512, 1.0)
