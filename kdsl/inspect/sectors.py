"""How many sectors a warp's access of global memory moves, against those that hold what it asks for.

Global memory moves sectors of 32 bytes ("CUDA C++ Best Practices Guide", Coalesced Access to Global Memory).
"""

from __future__ import annotations

from attrs import field, frozen

from kdsl.inspect.lanes import Pattern

SECTOR = 32  # bytes
ROW = 1 << 16  # elements between rows of a tensor whose strides the call decides


@frozen
class GlobalUse:
    """One access of global memory outside of asynchronous copies: `width` bytes a lane. Rows of strided
    tensors are taken to begin at multiples of 32 bytes; without patterns nothing is known."""

    stage: str | None
    buffer: str
    kind: str
    width: int
    patterns: tuple[Pattern, ...] = field(repr=False, default=())

    def sectors(self) -> tuple[int, int]:
        """Sectors of 32 bytes that the worst warp's access moves, and how many hold what it asks for."""
        found = [_sectors(pattern, self.width) for pattern in self.patterns]
        return max(found, key=lambda pair: pair[0] / pair[1], default=(1, 1))


def _sectors(pattern: Pattern, width: int) -> tuple[int, int]:
    lanes = [a for lane, a in enumerate(pattern.addresses) if pattern.active >> lane & 1]
    moved = {piece for a in lanes for piece in range(a // SECTOR, (a + width - 1) // SECTOR + 1)}
    return len(moved), max(-(-len(set(lanes)) * width // SECTOR), 1)
