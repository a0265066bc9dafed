"""Wavefronts of shared-memory accesses: exact, from the addresses of the lanes.

32 banks of 4 bytes. `ldmatrix` reads eight rows of 16 bytes in one wavefront if they lie in different banks.
A swizzle of w bytes exchanges 16-byte pieces within w bytes by the number of the row, of shorter rows by that of the
line of 128 bytes (for rows of 128 bytes and less: CUTLASS `Swizzle<log2(w / 16), 4, 3>`).
"""

from __future__ import annotations

from functools import lru_cache

BANKS, BANK_BYTES = 32, 4
PIECE = 16  # bytes that one lane of ldmatrix names
LINE = 128  # bytes of all banks
SWIZZLE_BITS = {0: 0, 32: 1, 64: 2, 128: 3}


def swizzled(address: int, width: int, row_bytes: int = LINE) -> int:
    mask = (1 << SWIZZLE_BITS[width]) - 1
    return address ^ ((address // max(row_bytes, LINE) & mask) << 4)


def wavefronts(addresses: list[int]) -> int:
    """How often the banks must be read for 16 bytes at each address."""
    banks: dict[int, set[int]] = {}
    for address in addresses:
        for word in range(address // BANK_BYTES, (address + PIECE) // BANK_BYTES):
            banks.setdefault(word % BANKS, set()).add(word)
    return max((len(words) for words in banks.values()), default=0)


@lru_cache(maxsize=1024)
def ldmatrix_degree(row_bytes: int, pad_bytes: int, swizzle: int) -> int:
    """Worst wavefronts of an 8 x 16-byte matrix over every position in a row; 1 is free of conflicts."""
    stride = row_bytes + pad_bytes
    worst = 1
    for first in range(8):
        for column in range(0, max(row_bytes - PIECE, 0) + 1, PIECE):
            rows = [(first + row) * stride + column for row in range(8)]
            worst = max(worst, wavefronts([swizzled(a, swizzle, stride) for a in rows] if swizzle else rows))
    return worst
