"""Products fed by a ring of bulk copies: a warp that copies, a warpgroup that multiplies, mbarriers between them.

`mistakes` leaves something out, or does it wrong, where the program can be told to.
"""

from __future__ import annotations

from tvm.backend.cuda.lang import MBarrier, PipelineState, TMABar
from tvm.script import tirx as T

ROWS, COLUMNS, DEPTH = 64, 32, 64  # of one step
COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"


def place(row, k):
    """Where an element of a row of 128 bytes lies in an image that is swizzled by 128 bytes."""
    return row * DEPTH + ((k // 8) ^ (row % 8)) * 8 + k % 8


def wgmma(acc, of_a, of_b, scale):
    return T.ptx[f"wgmma.mma_async.sync.aligned.m64n{COLUMNS}k16.f32.bf16.bf16"](
        *[acc[i] for i in range(COLUMNS // 2)], of_a, of_b, T.ptx.pred(scale), 1, 1, 0, 0
    )


def ring(steps: int = 6, stages: int = 2, mistake: str = ""):
    """C = sum over steps of A[step] B[step]^T. A and B are images, swizzled by 128 bytes."""
    size_a, size_b = ROWS * DEPTH, COLUMNS * DEPTH
    expected = (size_a + size_b) * 2
    copied = size_b * 2 - (1024 if mistake == "copies less" else 0)
    first_parity = 0 if mistake == "producer's parity" else 1
    consumer_parity = 1 if mistake == "consumer's parity" else 0
    swizzle = 2 if mistake == "swizzle" else 3
    readers = 64 if mistake == "count of arrivals" else 128
    slots = 1 if mistake == "slot" else stages
    ahead = 1 if mistake == "stale slot" else 0

    @T.prim_func
    def ring(
        A: T.Buffer((steps, size_a), "bfloat16"),
        B: T.Buffer((steps, size_b), "bfloat16"),
        C: T.Buffer((ROWS, COLUMNS), "float32"),
    ):
        T.device_entry()
        T.cta_id([1])
        group = T.warpgroup_id([2])
        warp = T.warp_id_in_wg([4])
        lane = T.lane_id([32])
        pool = T.SMEMPool()
        As = pool.alloc((stages, size_a), "bfloat16", align=1024)
        Bs = pool.alloc((stages, size_b), "bfloat16", align=1024)
        full = TMABar(pool, stages)
        empty = MBarrier(pool, stages)
        full.init(1)
        empty.init(readers)
        pool.commit()
        T.ptx.fence.mbarrier_init.release.cluster()
        if mistake != "barrier after init":
            T.cuda.cta_sync()
        if group == 1:
            T.ptx.setmaxnreg.dec.sync.aligned.u32(40)
            state = PipelineState(stages, first_parity)
            if warp == 0:  # noqa: SIM102 (the election is of a whole warp)
                if T.cuda.elect_sync():
                    for step in T.serial(steps):
                        if mistake != "wait for room":
                            empty.wait(state.stage, state.phase)
                        if mistake == "expect_tx":
                            T.ptx.mbarrier.arrive.shared.b64(full.ptr_to([state.stage]), T.uint32(1))
                        else:
                            full.arrive(state.stage, expected)
                        T.ptx[COPY](
                            As.ptr_to([state.stage % slots, 0]),
                            A.ptr_to([step, 0]),
                            T.uint32(size_a * 2),
                            full.ptr_to([state.stage]),
                        )
                        T.ptx[COPY](
                            Bs.ptr_to([state.stage, 0]),
                            B.ptr_to([step, 0]),
                            T.uint32(copied),
                            full.ptr_to([state.stage]),
                        )
                        state.advance()
        else:
            T.ptx.setmaxnreg.inc.sync.aligned.u32(240)
            state = PipelineState(stages, consumer_parity)
            acc = T.alloc_local([COLUMNS // 2], "float32")
            of_a = T.alloc_local([1], "uint64")
            of_b = T.alloc_local([1], "uint64")
            for step in T.serial(steps):
                if mistake != "wait for data":
                    full.wait(state.stage, state.phase)
                T.cuda.wgmma.encode_matrix_descriptor(
                    T.address_of(of_a[0]), As.ptr_to([(state.stage + ahead) % stages, 0]), 1, 64, 3
                )
                T.cuda.wgmma.encode_matrix_descriptor(
                    T.address_of(of_b[0]), Bs.ptr_to([state.stage, 0]), 1, 64, swizzle
                )
                T.ptx.wgmma.fence.sync.aligned()
                for k in T.unroll(DEPTH // 16):
                    wgmma(acc, of_a[0] + T.uint64(k * 2), of_b[0] + T.uint64(k * 2), T.bool(step + k > 0))
                T.ptx.wgmma.commit_group.sync.aligned()
                if mistake == "release before the product":
                    empty.arrive(state.stage)
                if mistake != "wait for the product":
                    T.ptx.wgmma.wait_group.sync.aligned(0)
                if mistake != "release before the product":
                    empty.arrive(state.stage)
                state.advance()
            for j in T.unroll(COLUMNS // 8):
                for h in T.unroll(2):
                    for v in T.unroll(2):
                        C[warp * 16 + lane // 4 + h * 8, j * 8 + (lane % 4) * 2 + v] = acc[j * 4 + h * 2 + v]

    return ring
