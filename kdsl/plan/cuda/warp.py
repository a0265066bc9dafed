"""Sizes of NVIDIA warps and of what a lane moves at once."""

LANES = 32
PIECE = 4  # neighbouring elements a lane takes at once: 16 bytes of f32
MOVED_PIECE = 8  # the same of 16-bit numbers that are moved as they are
ROW_BYTES = 16  # of a matrix row, which a matrix load reads at once


def warp_loop(index: str) -> str:
    """The loop over warps of a stage in which each sums its own rows of an index."""
    return f"{index}_warp"
