"""Matrices in panels of some columns, one panel behind the other, as descriptors of shared memory name them."""

from __future__ import annotations

from collections.abc import Sequence


def in_panels(place: Sequence, columns: int) -> tuple:
    """Where an element lies: its panel, its row, its column there. Its row and column come last in `place`."""
    *outer, row, column = place
    return (*outer, column // columns, row, column % columns)
