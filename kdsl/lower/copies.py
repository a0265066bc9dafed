"""Copies that move numbers as they are.

Stages compute in f32, so `to = from` of 16-bit numbers widens them and rounds again, which changes nothing but is
ten instructions for a piece of eight. A pass takes both conversions away. Copies past registers into shared memory fill
what they leave out with zeros themselves.
"""

from __future__ import annotations

import re

from kdsl.lower.sourcemap import rebuilt, with_bodies
from kdsl.lower.tvm import BufferStore, Cast


def without_round_trips(module):
    """The module with every store of a widened and narrowed number as a store of the number."""
    return with_bodies(module, moved)


def moved(statement):
    if isinstance(statement, BufferStore) and isinstance(statement.value, Cast):
        inner, dtype = statement.value.value, str(statement.buffer.dtype)
        if isinstance(inner, Cast) and str(inner.value.ty.dtype) == dtype in ("bfloat16", "float16"):
            return BufferStore(statement.buffer, inner.value, statement.indices)
        return statement
    return rebuilt(statement, moved)


# TVM's helper branches on the condition, and stores zeros without it.
CONDITIONAL = re.compile(r"__device__ void ptx_cp_async\w*_pred_\w*\([^{]*\{.*?^\}", re.MULTILINE | re.DOTALL)
BRANCHING = re.compile(
    r'    "\{\\n"\n    " \.reg \.pred p;\\n"\n    " setp\.eq\.u32 p, %3, 1;\\n"\n'
    r'    " @p (cp\.async\.\w+\.shared\.global(?:\.L2::128B)?) \[%0\], \[%1\], %2;\\n"\n'
    r'    " @!p [^\n]*\n    "\}\\n"\n    :: "r"\(dst_addr\), "l"\(src_p\), "n"\((\d+)\), "r"\(predicate\)[^\n]*\n'
)
FILLING = r'    "\1 [%0], [%1], %2, %3;\\n"\n    :: "r"(dst_addr), "l"(src_p), "n"(\2), "r"(predicate ? \2 : 0)\n'


def filling(source: str) -> str:
    """The source with conditional copies that read no bytes, and fill with zeros, where the condition fails.

    Raises ValueError where TVM writes its helper in a way that is not known here.
    """
    return CONDITIONAL.sub(_filled, source)


def _filled(helper: re.Match) -> str:
    text, found = BRANCHING.subn(FILLING, helper[0])
    if found != 1:
        raise ValueError(f"a conditional asynchronous copy has another text than expected:\n{helper[0]}")
    return text
