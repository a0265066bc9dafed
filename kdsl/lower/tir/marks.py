"""Device functions that move no value: words to warps beside, waits of a warp, marks of memory that is in use."""

from __future__ import annotations

from kdsl.lower.intrinsics.warpgroup import FENCE, FENCE_SOURCE
from kdsl.lower.tvm import Evaluate, T

# What linked kernels say to each other: kdsl/lower/link.py makes barriers of it.
WAIT_FULL, SAY_EMPTY, WAIT_EMPTY, SAY_FULL = "KDSL_WAIT_FULL", "KDSL_SAY_EMPTY", "KDSL_WAIT_EMPTY", "KDSL_SAY_FULL"
RING, GROUP = "kdsl_ring_", "kdsl_group"
KEEP = "__device__ __forceinline__ void kdsl_keep(const void*) {}\n"
WARP_SYNC = "kdsl_warp_sync"
WARP_SYNC_SOURCE = "__device__ __forceinline__ void kdsl_warp_sync() { __syncwarp(); }\n"


def warp_sync():
    """The lanes of a warp wait for each other, and see what the others did in shared memory."""
    return Evaluate(T.cuda.func_call(WARP_SYNC, source_code=WARP_SYNC_SOURCE))


def keep(buffer):
    """A use of a buffer that no instruction comes from: its memory stays its own until here."""
    return Evaluate(T.cuda.func_call("kdsl_keep", buffer.access_ptr("r"), source_code=KEEP))


def ring(buffer, name: str):
    """A mark of where in shared memory a ring lies that the kernel beside fills."""
    called = f"{RING}{name}"
    return Evaluate(T.cuda.func_call(called, buffer.access_ptr("r"), source_code=KEEP.replace("kdsl_keep", called)))


def shared_fence():
    """What this thread wrote to shared memory is there for reads through descriptors, once a barrier has passed."""
    return Evaluate(T.cuda.func_call(FENCE, source_code=FENCE_SOURCE))
