"""Matrix instructions by the names that plans give their intrinsics and fragments."""

from __future__ import annotations

from kdsl.lower.intrinsics import matrix, squares, tiles, warpgroup

# Element (row, column) of a 16 x 16 tile to lane and slot. A warp of a warpgroup holds what it would hold alone.
FRAGMENTS: dict[str, matrix.Place] = {"mma.m16n8k16": matrix.mma_place, "wgmma.m64k16": matrix.mma_place}


def register(name: str) -> None:
    """Make an intrinsic known to TVM, once."""
    known = {warpgroup.PREFIX: warpgroup, squares.PREFIX: squares, **dict.fromkeys(tiles.PREFIXES, tiles)}
    next((module for prefix, module in known.items() if name.startswith(prefix)), matrix).register(name)
