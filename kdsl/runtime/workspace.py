"""Memory of the host that lives for one launch, filled with NaN on request so that tests see what is read
unwritten.
"""

from __future__ import annotations

import ctypes
import os

import attrs

POISON_VARIABLE = "KDSL_POISON"
# All bits set: NaN as bf16, f16 and f32, -1 as an integer.
POISON_BYTE = 0xFF
ALIGNMENT = 64

# Python's own names for malloc and free, on every system. malloc keeps freed memory, so that a loop of calls
# does not fault its pages in again.
_malloc = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(("PyMem_RawMalloc", ctypes.pythonapi))
_free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("PyMem_RawFree", ctypes.pythonapi))


@attrs.frozen(eq=False)
class Workspace:
    """`address` of the memory, a multiple of 64, valid until `free`."""

    address: int
    _block: int

    def free(self) -> None:
        """Give the memory back; once only."""
        _free(self._block)


def poisoned() -> bool:
    """Whether KDSL_POISON=1: fill workspaces and fresh outputs with NaN before every launch."""
    return os.environ.get(POISON_VARIABLE) == "1"


def allocate(size: int, device: str = "cpu") -> Workspace:
    """`size` bytes of unknown content on the host, whatever its `device` is called. Raises MemoryError."""
    block = _malloc(size + ALIGNMENT) if size < 2**62 else None
    if block is None:
        raise MemoryError(
            f"workspace: found no {size} bytes of memory; needed for this call; make the call smaller"
        )
    address = -(-block // ALIGNMENT) * ALIGNMENT
    if poisoned():
        ctypes.memset(address, POISON_BYTE, size)
    return Workspace(address, block)
