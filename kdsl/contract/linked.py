"""The shared memory of a block that warps of two kernels are in."""

from __future__ import annotations

from attrs import frozen

APART = 128  # bytes that each warps' part of shared memory starts at multiples of
BARRIER_BYTES = 8


@frozen
class Shared:
    """Bytes of a block's shared memory: the taking warps' own, each group's own, the barriers."""

    taker: int
    giver: int
    groups: int

    def group(self, number: str) -> str:
        """Where a group's part begins, as an expression."""
        return f"{rounded(self.taker)} + {number} * {rounded(self.giver)}"

    @property
    def barriers(self) -> int:
        return rounded(self.taker) + self.groups * rounded(self.giver)

    @property
    def total(self) -> int:
        return self.barriers + 2 * self.groups * BARRIER_BYTES


def rounded(size: int) -> int:
    return -(-size // APART) * APART
