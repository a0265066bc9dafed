"""Where the elements of a tensor lie: contiguous, with gaps, or with axes in another order."""

from __future__ import annotations

import numpy as np
from attrs import field, frozen

from kdsl.prove.fields import TAINT


@frozen
class Layout:
    """`strides` in elements; `positions` of every logical element in a storage of `length` elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    length: int
    positions: np.ndarray = field(repr=False, eq=False)

    @classmethod
    def of(cls, shape: tuple[int, ...], order: tuple[int, ...] | None = None, gap: int = 0) -> Layout:
        """`order` lists the axes from the outermost in memory to the innermost; each row is followed by `gap`
        elements that belong to nobody."""
        order = tuple(range(len(shape))) if order is None else order
        strides, pitch = [0] * len(shape), 1
        for place, axis in enumerate(reversed(order)):
            strides[axis] = pitch
            pitch = pitch * max(shape[axis], 1) + (gap if place == 0 else 0)
        return cls._placed(shape, strides, pitch)

    @classmethod
    def bound(cls, shape: tuple[int, ...], required: tuple[int | None, ...], gap: int = 0) -> Layout:
        """Axes in their own order, with the strides that the program relies on; `gap` elements at the first
        axis from the inside whose stride is free."""
        strides, pitch = [0] * len(shape), 1
        for axis in reversed(range(len(shape))):
            fixed = required[axis]
            if fixed is None:
                strides[axis], gap = pitch + gap, 0
            else:
                strides[axis] = fixed
            pitch = max(pitch, strides[axis] * max(shape[axis], 1))
        return cls._placed(shape, strides, pitch)

    def has(self, required: tuple[int | None, ...]) -> bool:
        """Whether these are strides that the program can be given."""
        return all(fixed in (None, stride) for fixed, stride in zip(required, self.strides, strict=False))

    @classmethod
    def _placed(cls, shape: tuple[int, ...], strides: list[int], length: int) -> Layout:
        positions = np.zeros(shape, np.int64)
        for axis, (extent, stride) in enumerate(zip(shape, strides, strict=False)):
            along = [1] * len(shape)
            along[axis] = extent
            positions = positions + (np.arange(extent, dtype=np.int64) * stride).reshape(along)
        return cls(shape, tuple(strides), max(length, 1), positions)

    def unwritten(self) -> np.ndarray:
        """Storage that nothing was written to."""
        return np.full(self.length, TAINT | np.uint32(777), np.uint32)

    def stored(self, values: np.ndarray) -> np.ndarray:
        """Storage with these logical values; the gaps are unwritten."""
        storage = self.unwritten()
        storage[self.positions.reshape(-1)] = values.reshape(-1).astype(np.uint32)
        return storage

    def read(self, storage: np.ndarray) -> np.ndarray:
        return storage[self.positions]

    def gaps(self, storage: np.ndarray) -> np.ndarray:
        mask = np.ones(self.length, bool)
        mask[self.positions.reshape(-1)] = False
        return storage[mask]
