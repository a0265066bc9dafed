"""Wavefronts of one warp's access to shared memory, from the byte addresses of its lanes.

Shared memory has 32 banks of 4 bytes; successive words lie in successive banks ("CUDA C++ Programming Guide",
Shared Memory, compute capability 5.x and later). A request takes as many wavefronts as the bank with the most
different words: lanes that read the same word share it, and lanes that touch bytes of the same word do not
conflict. A warp's access is one request for up to 4 bytes a lane, one for each half warp for 8 bytes and
one for each quarter for 16. ldmatrix and stmatrix make one request for each 8 x 8 matrix, of eight rows of
16 bytes.

`paired` adds what NVIDIA says of 64-bit and 128-bit loads on compute capability 7.x (developer forum,
"Unexpected shared memory bank conflict"): if every active lane n has the address of lane n ^ 1, or every one
that of n ^ 2, two requests become one. Without it the count is an upper bound.

Copies from global to shared memory, as Nsight Compute counts 90 patterns of them on an H200: copies of 4 and 8 bytes go
through L1, and a request takes as many wavefronts as the bank with the most words among those that it writes or, in L1,
among those that it reads. Copies of 16 bytes go past L1 (`cp.async.cg`); they take one for each quarter warp wherever
they write, since what arrives from L2 is written as it arrives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

LANES = 32
BANKS = 32
BANK_BYTES = 4
ALL = 0xFFFF_FFFF
WIDTHS = (1, 2, 4, 8, 16)
ROW_BYTES = 16  # of a matrix of ldmatrix and stmatrix
PAST_L1 = 16  # bytes a lane of the copies that go past L1
COPY_ISSUE = 4  # wavefronts that Nsight Compute counts for a copy through L1 beside those of its data
SWIZZLE_BITS = {0: 0, 32: 1, 64: 2, 128: 3}


@frozen
class Misaligned(Exception):
    """A lane's address is no multiple of the width: the access would fault."""

    lane: int
    address: int
    width: int

    def __str__(self) -> str:
        return f"lane {self.lane} accesses {self.width} bytes at address {self.address}, which is no multiple"


@frozen
class Wavefronts:
    """`requests` are the wavefronts of each; `ideal` is what the same words take without a conflict."""

    requests: tuple[int, ...]
    ideal: int

    @property
    def count(self) -> int:
        return sum(self.requests)

    @property
    def excess(self) -> int:
        """Wavefronts lost to bank conflicts."""
        return self.count - self.ideal

    @property
    def degree(self) -> float:
        """Wavefronts over the ideal: 1 without a conflict, 8 if it is 8-way; 1 if no lane is active."""
        return self.count / self.ideal if self.ideal else 1.0


def wavefronts(addresses: Sequence[int], width: int, active: int = ALL, paired: bool = False) -> Wavefronts:
    """A load or store of `width` bytes a lane.

    `addresses` has 32 entries; bit n of `active` says whether lane n takes part. Raises Misaligned.
    """
    lanes = _active(addresses, width, active)
    size = LANES if width <= BANK_BYTES else LANES * BANK_BYTES // width
    if paired and width > BANK_BYTES and _pairs(addresses, lanes):
        size *= 2
    groups = ([lane for lane in lanes if lane // size == group] for group in range(LANES // size))
    return _requests([[addresses[lane] for lane in group] for group in groups if group], width)


def copy_wavefronts(
    written: Sequence[int], width: int, active: int = ALL, read: Sequence[int] | None = None
) -> Wavefronts:
    """cp.async of `width` bytes a lane to the shared addresses `written`, from the global addresses `read`, which are
    taken as free of conflicts where they are not given. Raises Misaligned."""
    into = wavefronts(written, width, active)
    if width == PAST_L1:
        return Wavefronts((1,) * len(into.requests), len(into.requests))
    if read is None:
        return into
    out = wavefronts(read, width, active)
    return Wavefronts(tuple(map(max, into.requests, out.requests)), into.ideal)


def _active(addresses: Sequence[int], width: int, active: int) -> list[int]:
    if width not in WIDTHS:
        raise ValueError(f"no access is {width} bytes wide")
    lanes = [lane for lane in range(LANES) if active >> lane & 1]
    for lane in lanes:
        if addresses[lane] % width:
            raise Misaligned(lane, addresses[lane], width)
    return lanes


def matrix_wavefronts(rows: Sequence[int], matrices: int) -> Wavefronts:
    """ldmatrix or stmatrix .x1, .x2 or .x4: lane n names row n % 8 of matrix n / 8. Raises Misaligned."""
    if matrices not in (1, 2, 4):
        raise ValueError(f"no instruction moves {matrices} matrices")
    for lane, address in enumerate(rows[: 8 * matrices]):
        if address % ROW_BYTES:
            raise Misaligned(lane, address, ROW_BYTES)
    return _requests([rows[8 * m : 8 * m + 8] for m in range(matrices)], ROW_BYTES)


def swizzled(address: int, span: int) -> int:
    """A byte address under the swizzle of 32, 64 or 128 bytes that TMA, wgmma and tcgen05 share.

    The 16-byte piece within `span` bytes is exchanged by the number of the 128-byte line: CUTLASS
    `Swizzle<log2(span / 16), 4, 3>`. Address 0 is the start of a tile that lies at a multiple of eight lines.
    """
    return xor_swizzle(address, SWIZZLE_BITS[span], 4, 3)


def xor_swizzle(address: int, bits: int, base: int, shift: int) -> int:
    """CUTLASS `Swizzle<bits, base, shift>`: `bits` bits of the address from `base + shift` up are XORed into
    those from `base` up."""
    return address ^ ((address >> shift) & (((1 << bits) - 1) << base))


def padded(row: int, column: int, row_bytes: int, pad_bytes: int = 0) -> int:
    """Byte address of a column, in bytes, of a row-major tile with rows `pad_bytes` longer than need be."""
    return row * (row_bytes + pad_bytes) + column


def _requests(groups: Iterable[Sequence[int]], width: int) -> Wavefronts:
    taken, ideal = [], 0
    for group in groups:
        words = {word for address in group for word in _words(address, width)}
        in_bank = [0] * BANKS
        for word in words:
            in_bank[word % BANKS] += 1
        taken.append(max(in_bank))
        ideal += -(-len(words) // BANKS)
    return Wavefronts(tuple(taken), ideal)


def _words(address: int, width: int) -> range:
    return range(address // BANK_BYTES, (address + width - 1) // BANK_BYTES + 1)


def _pairs(addresses: Sequence[int], lanes: Sequence[int]) -> bool:
    active = set(lanes)
    return any(
        all(lane ^ flip not in active or addresses[lane] == addresses[lane ^ flip] for lane in lanes)
        for flip in (1, 2)
    )
