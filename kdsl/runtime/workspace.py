"""Memory that lives for one launch: aligned to a page, filled with NaN on request so that a test sees stale
reads.
"""

from __future__ import annotations

import ctypes
import mmap
import os

import attrs

POISON_VARIABLE = "KDSL_POISON"
# All bits set: NaN as bf16, f16 and f32, -1 as an integer.
_POISON_BYTE = 0xFF


@attrs.frozen(eq=False)
class Workspace:
    """`address` of the memory, valid while this object lives."""

    address: int
    _memory: object = attrs.field(repr=False)


def poisoned() -> bool:
    """Whether KDSL_POISON=1: fill workspaces and fresh outputs with NaN before every launch."""
    return os.environ.get(POISON_VARIABLE) == "1"


def allocate(size: int) -> Workspace:
    """`size` bytes, given back to the system when the result is dropped. Raises MemoryError, OSError."""
    memory = mmap.mmap(-1, max(size, 1))
    first = ctypes.c_char.from_buffer(memory)
    address = ctypes.addressof(first)
    if poisoned():
        ctypes.memset(address, _POISON_BYTE, size)
    return Workspace(address, first)
