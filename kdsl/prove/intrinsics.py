"""Tensorized blocks: what the instruction is described to do, in place of the device function that does it.

The body of such a block is one call of a device function whose name is that of a registered `TensorIntrin`.
The description stands for it only if the body is exactly the registered implementation; what that
implementation does on hardware is one GPU test for each intrinsic, and the proof lists it as trusted.
"""

from __future__ import annotations

from kdsl.lower.intrinsics.warpgroup import FENCE_SOURCE
from kdsl.lower.tir.marks import KEEP, WARP_SYNC_SOURCE
from kdsl.lower.tvm import s_tir
from kdsl.prove.meaning import kind, same_structure
from kdsl.prove.refusal import NoMeaning, shortened

DEVICE_CALLS = {"tirx.cuda.func_call", "tirx.call_extern", "tirx.call_pure_extern"}


def intrinsic_of(block) -> str | None:
    """The name of the device function that the block's body is a call of."""
    statement = block.body
    while kind(statement) == "For":
        statement = statement.body
    if kind(statement) != "Evaluate" or kind(statement.value) != "Call":
        return None
    if statement.value.op.name not in DEVICE_CALLS:
        return None
    return str(statement.value.args[0].value)


def description_of(block):
    """The description (a PrimFunc over the block's matched buffers), or None for a block of plain statements.

    Raises NoMeaning for a device function without one, or a body that is not the registered implementation.
    """
    name = intrinsic_of(block)
    if name is None:
        return None
    stage = str(block.name_hint)
    try:
        intrinsic = s_tir.TensorIntrin.get(name)
    except Exception:
        raise NoMeaning(
            f"device function `{name}` has no description",
            shortened(block.body),
            stage,
            "register it as a tensor intrinsic with a description",
        ) from None
    found = [*(match.buffer for match in block.match_buffers), block.body]
    registered = [*intrinsic.impl.params, implementation_body(intrinsic.impl)]
    if not same_structure(found, registered, free_variables=True):
        raise NoMeaning(
            f"the call of `{name}` is not its registered implementation",
            shortened(block.body),
            stage,
            "call the intrinsic through tensorize alone",
        )
    return intrinsic.desc


def implementation_body(func):
    body = func.body
    while kind(body) == "SBlockRealize":
        body = body.block.body
    return body


def keeps_memory(call) -> bool:
    """A device function that moves no value: it tells the compiler that memory is still in use, or orders accesses."""
    if kind(call) != "Call" or call.op.name not in DEVICE_CALLS:
        return False
    return str(getattr(call.args[len(call.args) - 1], "value", "")) in (KEEP, FENCE_SOURCE, WARP_SYNC_SOURCE)
