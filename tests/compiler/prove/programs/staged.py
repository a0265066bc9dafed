"""Products whose operands threads write themselves and whose result leaves in bulk: proxy fences and named barriers.

One warpgroup of two multiplies, the other watches. Each step: A and B into shared memory, as a swizzle lays them out; a
fence and a barrier of the warpgroup; the product; the result into shared memory, and from there row by row to C.
"""

from __future__ import annotations

from tvm.script import tirx as T

ROWS, COLUMNS, DEPTH, STEPS = 64, 16, 64, 2
STORE = "cp.async.bulk.global.shared::cta.bulk_group"


def wgmma(acc, of_a, of_b, scale):
    return T.ptx[f"wgmma.mma_async.sync.aligned.m64n{COLUMNS}k16.f32.bf16.bf16"](
        *[acc[i] for i in range(COLUMNS // 2)], of_a, of_b, T.ptx.pred(scale), 1, 1, 0, 0
    )


def place(row, k, rows: int, mode: int):
    """The element of an operand [rows, DEPTH] in rows of `8 << mode` elements, swizzled by as many bytes twice over."""
    width = 8 << mode
    piece = (k % width // 8) ^ (row * width // 64 % (width // 8))
    return k // width * (rows * width) + row * width + piece * 8 + k % 8


def advance(k: int, rows: int, mode: int) -> int:
    """From the first product of 16 to the k-th, in units of 16 bytes."""
    width = 8 << mode
    return 16 * k // width * (rows * width // 8) + 16 * k % width // 8


def staged(mistake: str = "", mode: int = 3):
    """The function, or with a `mistake` in it. `mode` is the swizzle: 0 for none, 1 to 3 for 32, 64 and 128 bytes."""
    stride = 8 << mode
    leading_a, leading_b = (ROWS, COLUMNS) if mode == 0 else (1, 1)
    waiting = 64 if mistake == "half of the barrier" else 128

    @T.prim_func
    def staged(
        A: T.Buffer((STEPS, ROWS, DEPTH), "bfloat16"),
        B: T.Buffer((STEPS, COLUMNS, DEPTH), "bfloat16"),
        C: T.Buffer((STEPS, ROWS, COLUMNS), "float32"),
    ):
        T.device_entry()
        T.cta_id([1])
        group = T.warpgroup_id([2])
        warp = T.warp_id_in_wg([4])
        lane = T.lane_id([32])
        pool = T.SMEMPool()
        As = pool.alloc((ROWS * DEPTH,), "bfloat16", align=1024)
        Bs = pool.alloc((COLUMNS * DEPTH,), "bfloat16", align=1024)
        Cs = pool.alloc((ROWS, COLUMNS), "float32", align=128)
        pool.commit()
        if group == 0:
            thread = warp * 32 + lane
            acc = T.alloc_local([COLUMNS // 2], "float32")
            of_a = T.alloc_local([1], "uint64")
            of_b = T.alloc_local([1], "uint64")
            T.cuda.wgmma.encode_matrix_descriptor(T.address_of(of_a[0]), As.ptr_to([0]), leading_a, stride, mode)
            T.cuda.wgmma.encode_matrix_descriptor(T.address_of(of_b[0]), Bs.ptr_to([0]), leading_b, stride, mode)
            for step in T.serial(STEPS):
                for i in T.serial(ROWS * DEPTH // 128):
                    e = i * 128 + thread
                    As[place(e // 64, e % 64, ROWS, mode)] = A[step, e // 64, e % 64]
                for i in T.serial(COLUMNS * DEPTH // 128):
                    e = i * 128 + thread
                    Bs[place(e // 64, e % 64, COLUMNS, mode)] = B[step, e // 64, e % 64]
                if mistake != "fence of the operands":
                    T.ptx["fence.proxy.async.shared::cta"]()
                if mistake != "barrier":
                    T.ptx["bar.sync"](1, waiting)
                T.ptx.wgmma.fence.sync.aligned()
                for k in T.unroll(DEPTH // 16):
                    wgmma(
                        acc,
                        of_a[0] + T.uint64(advance(k, ROWS, mode)),
                        of_b[0] + T.uint64(advance(k, COLUMNS, mode)),
                        T.bool(k > 0),
                    )
                T.ptx.wgmma.commit_group.sync.aligned()
                T.ptx.wgmma.wait_group.sync.aligned(0)
                for j in T.unroll(COLUMNS // 8):
                    for h in T.unroll(2):
                        for v in T.unroll(2):
                            Cs[warp * 16 + lane // 4 + h * 8, j * 8 + lane % 4 * 2 + v] = acc[j * 4 + h * 2 + v]
                if mistake != "fence of the result":
                    T.ptx["fence.proxy.async.shared::cta"]()
                T.ptx["bar.sync"](1, 128)
                if thread < ROWS:
                    T.ptx[STORE](C.ptr_to([step, thread, 0]), Cs.ptr_to([thread, 0]), T.uint32(COLUMNS * 4))
                T.ptx["cp.async.bulk.commit_group"]()
                if mistake != "wait for the store":
                    T.ptx["cp.async.bulk.wait_group.read"](0)
                T.ptx["bar.sync"](1, 128)

    return staged
