"""Programs of one warp, each about one thing that the fields have to get right."""

from __future__ import annotations

from tvm.script import tirx as T

LANES = 32


def exponential(factor: float):
    """C = 2^(A factor)."""

    @T.prim_func
    def exponential(A: T.Buffer((LANES,), "float32"), C: T.Buffer((LANES,), "float32")):
        T.device_entry()
        T.cta_id([1])
        T.warp_id([1])
        lane = T.lane_id([LANES])
        C[lane] = T.exp2(A[lane] * T.float32(factor))

    return exponential


def mixed():
    """C = exp(A) + A: an exponent used as a value."""

    @T.prim_func
    def mixed(A: T.Buffer((LANES,), "float32"), C: T.Buffer((LANES,), "float32")):
        T.device_entry()
        T.cta_id([1])
        T.warp_id([1])
        lane = T.lane_id([LANES])
        C[lane] = T.exp(A[lane]) + A[lane]

    return mixed


def shifted(by: int, last: int = LANES - 1):
    """C[i] = A[min(i + by, last)]."""

    @T.prim_func
    def shifted(A: T.Buffer((LANES,), "float32"), C: T.Buffer((LANES,), "float32")):
        T.device_entry()
        T.cta_id([1])
        T.warp_id([1])
        lane = T.lane_id([LANES])
        C[lane] = A[T.min(lane + by, last)]

    return shifted


def kept(upto: int):
    """C[i] = A[i] for i < upto."""

    @T.prim_func
    def kept(A: T.Buffer((LANES,), "float32"), C: T.Buffer((LANES,), "float32")):
        T.device_entry()
        T.cta_id([1])
        T.warp_id([1])
        lane = T.lane_id([LANES])
        if lane < upto:
            C[lane] = A[lane]

    return kept


def written_back():
    """C = A, and A = 0."""

    @T.prim_func
    def written_back(A: T.Buffer((LANES,), "float32"), C: T.Buffer((LANES,), "float32")):
        T.device_entry()
        T.cta_id([1])
        T.warp_id([1])
        lane = T.lane_id([LANES])
        C[lane] = A[lane]
        A[lane] = T.float32(0)

    return written_back


def halved(packed: bool):
    """C = A / 2 by its exponent, or by its bits."""

    @T.prim_func
    def halved(A: T.Buffer((LANES,), "float32"), C: T.Buffer((LANES,), "float32")):
        T.device_entry()
        T.cta_id([1])
        T.warp_id([1])
        lane = T.lane_id([LANES])
        if packed:
            C[lane] = T.reinterpret("float32", T.reinterpret("uint32", A[lane]) - T.uint32(1 << 23))
        else:
            C[lane] = A[lane] * T.float32(0.5)

    return halved
