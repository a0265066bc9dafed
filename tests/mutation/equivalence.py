"""Whether an accepted mutant is the same program, and why."""

from __future__ import annotations

import re
from functools import lru_cache

from kdsl.lower.toolchain import nvcc
from kdsl.lower.toolchain.cc import CompilerFailed

from .barriers import keeps_nothing_apart
from .mutant import Mutant
from .verdict import Outcome

ARCH = "sm_90a"
_NAMES = re.compile(rb"_[0-9a-f]{8}_9_kernel_cu_[0-9a-f]{8}")


@lru_cache(maxsize=16)
def machine_code(text: str) -> bytes:
    """The cubin without what its source's text alone decides."""
    made = nvcc.compile(text, ARCH, nvcc.Options(line_info=False, fast_math=True))
    return _NAMES.sub(b"", made.cubin)


def same_code(text: str, changed: str) -> bool | None:
    """Whether both texts compile to the same bytes; None where nvcc refuses the changed one."""
    try:
        return machine_code(text) == machine_code(changed)
    except CompilerFailed:
        return None


def reason_of(mutant: Mutant, text: str, outcome: Outcome) -> str:
    """Why an accepted mutant is the same program, or an empty text."""
    if outcome.same_code:
        return "same machine code"
    if not outcome.same_output:
        return ""
    if "shared" in mutant.launch:
        return "bytes at the end of shared memory that no access reaches: padding of a last row"
    if mutant.operator == "drop_barrier" and keeps_nothing_apart(text, mutant.edits[0].start):
        return "a barrier that keeps no two threads apart, by the addresses on its sides"
    return ""
