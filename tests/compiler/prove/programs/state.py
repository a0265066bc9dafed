"""A state in registers, step by step: S <- S diag(exp(g)); U = u - S W^T; S <- S + U K.

One warpgroup; S is the left operand of one wgmma, out of registers, and the sum of another, whose right operand lies
in shared memory the other way round. Its own thread 0 copies in bulk.
"""

from __future__ import annotations

from tvm.backend.cuda.lang import TMABar
from tvm.script import tirx as T

ROWS, KEYS, CHUNK, STEPS = 64, 64, 16, 3
COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
BYTES = CHUNK * KEYS * 2
UPPER = 0xFFFF0000


def predict(acc, a, k, of_b):
    return T.ptx["wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16"](
        *[acc[i] for i in range(8)], *[a[k * 4 + i] for i in range(4)], of_b, T.ptx.pred(T.bool(k > 0)), 1, 1, 0
    )


def update(acc, a, of_b, transposed):
    return T.ptx["wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16"](
        *[acc[i] for i in range(32)], *[a[i] for i in range(4)], of_b, T.ptx.pred(T.bool(True)), 1, 1, transposed
    )


def state(mistake: str = ""):
    """The function, or with a `mistake` in it."""
    transposed = 0 if mistake == "not transposed" else 1
    stride = 32 if mistake == "stride" else 64

    @T.prim_func
    def state(
        W: T.Buffer((STEPS, CHUNK * KEYS), "bfloat16"),
        K: T.Buffer((STEPS, CHUNK * KEYS), "bfloat16"),
        G: T.Buffer((STEPS, KEYS), "float32"),
        U: T.Buffer((STEPS, ROWS, CHUNK), "bfloat16"),
        S: T.Buffer((ROWS, KEYS), "float32"),
    ):
        T.device_entry()
        T.cta_id([1])
        warp = T.warp_id([4])
        lane = T.lane_id([32])
        pool = T.SMEMPool()
        Ws = pool.alloc((CHUNK * KEYS,), "bfloat16", align=1024)
        Ks = pool.alloc((CHUNK * KEYS,), "bfloat16", align=1024)
        full = TMABar(pool, 1)
        full.init(1)
        pool.commit()
        T.ptx.fence.mbarrier_init.release.cluster()
        T.cuda.cta_sync()
        s = T.alloc_local([32], "float32")
        predicted = T.alloc_local([8], "float32")
        left = T.alloc_local([16], "uint32")
        change = T.alloc_local([4], "uint32")
        u = T.alloc_local([4], "uint32")
        of_w = T.alloc_local([1], "uint64")
        of_k = T.alloc_local([1], "uint64")
        for i in T.unroll(32):
            s[i] = T.float32(0)
        for t in T.serial(STEPS):
            if warp * 32 + lane == 0:
                full.arrive(0, 2 * BYTES)
                T.ptx[COPY](Ws.ptr_to([0]), W.ptr_to([t, 0]), T.uint32(BYTES), full.ptr_to([0]))
                T.ptx[COPY](Ks.ptr_to([0]), K.ptr_to([t, 0]), T.uint32(BYTES), full.ptr_to([0]))
            for j in T.unroll(8):
                for h in T.unroll(2):
                    for v in T.unroll(2):
                        s[j * 4 + h * 2 + v] = s[j * 4 + h * 2 + v] * T.exp(G[t, j * 8 + lane % 4 * 2 + v])
            for j in T.unroll(8):
                for h in T.unroll(2):
                    if mistake == "halves":
                        T.ptx.cvt.rn.bf16x2.f32(left[j * 2 + h], s[j * 4 + h * 2], s[j * 4 + h * 2 + 1])
                    else:
                        T.ptx.cvt.rn.bf16x2.f32(left[j * 2 + h], s[j * 4 + h * 2 + 1], s[j * 4 + h * 2])
            for j in T.unroll(2):
                for h in T.unroll(2):
                    T.ptx["ld.global.nc.b32"](
                        u[j * 2 + h], U.ptr_to([t, warp * 16 + lane // 4 + h * 8, j * 8 + lane % 4 * 2])
                    )
            full.wait(0, t % 2)
            T.cuda.wgmma.encode_matrix_descriptor(T.address_of(of_w[0]), Ws.ptr_to([0]), 1, stride, 3)
            T.cuda.wgmma.encode_matrix_descriptor(T.address_of(of_k[0]), Ks.ptr_to([0]), 1, stride, 3)
            T.ptx.wgmma.fence.sync.aligned()
            for k in T.unroll(4):
                predict(predicted, left, k, of_w[0] + T.uint64(k * 2))
            T.ptx.wgmma.commit_group.sync.aligned()
            if mistake != "wait":
                T.ptx.wgmma.wait_group.sync.aligned(0)
            for j in T.unroll(2):
                for h in T.unroll(2):
                    T.ptx.cvt.rn.bf16x2.f32(
                        change[j * 2 + h],
                        T.reinterpret("float32", u[j * 2 + h] & T.uint32(UPPER)) - predicted[j * 4 + h * 2 + 1],
                        T.reinterpret("float32", u[j * 2 + h] << T.uint32(16)) - predicted[j * 4 + h * 2],
                    )
            T.ptx.wgmma.fence.sync.aligned()
            update(s, change, of_k[0], transposed)
            T.ptx.wgmma.commit_group.sync.aligned()
            T.ptx.wgmma.wait_group.sync.aligned(0)
            if mistake != "barrier":
                T.cuda.cta_sync()
        for j in T.unroll(8):
            for h in T.unroll(2):
                for v in T.unroll(2):
                    S[warp * 16 + lane // 4 + h * 8, j * 8 + lane % 4 * 2 + v] = s[j * 4 + h * 2 + v]

    return state
