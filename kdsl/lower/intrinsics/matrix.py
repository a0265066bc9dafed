"""Matrix instructions as TVM tensor intrinsics.

Each is a 16 x 16 x 16 product of a warp: operand A and the accumulator in registers as fragments, operand B read
from shared memory with ldmatrix. The device function has a name, so that the emulator and the prover know it too.
Fragment maps: PTX ISA, "Matrix Fragments for mma.m16n8k16".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from kdsl.lower.tvm import T, TensorIntrin

Place = Callable[[int, int], tuple[int, int]]


def mma_place(i, j):
    """Lane and slot of element (i, j) of a 16 x 16 tile: the same for A and for two adjacent C fragments."""
    return 4 * (i % 8) + (j % 8) // 2, 4 * (j // 8) + (i // 8) * 2 + (j % 2)


FRAGMENTS: dict[str, Place] = {"mma.m16n8k16": mma_place}

DTYPES = {"bf16": ("bfloat16", "nv_bfloat16", "bf16"), "f16": ("float16", "half", "f16")}
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.{ptx}.{ptx}.f32"


def intrinsic_name(instruction: str, dtype: str, stored: str) -> str:
    """`stored` is how B lies in shared memory: "nk" (rows are columns of the result) or "kn"."""
    return f"kdsl_{instruction.replace('.', '_')}_{dtype}_{stored}"


def device_source(name: str, dtype: str, stored: str) -> str:
    """CUDA of one product. `a`: 8 values of the lane's A fragment; `c`: 8 accumulators; `b`: the tile's first
    element in shared memory, rows `ld` elements apart."""
    _, ctype, ptx = DTYPES[dtype]
    transposed = ".trans" if stored == "kn" else ""
    row = "(lane & 15) * ld + (lane >> 4) * 8" if stored == "kn" else (
        "((lane >> 4) * 8 + (lane & 7)) * ld + ((lane >> 3) & 1) * 8"
    )  # fmt: skip
    product = MMA.format(ptx=ptx)
    lines = [
        f"__device__ __forceinline__ void {name}(float* c, const {ctype}* a_, const {ctype}* b_, int ld) {{",
        "  const unsigned* a = reinterpret_cast<const unsigned*>(a_);",
        "  unsigned b0, b1, b2, b3;",
        "  int lane = threadIdx.x;",
        f"  unsigned address = (unsigned)__cvta_generic_to_shared(b_ + {row});",
        f'  asm volatile("ldmatrix.sync.aligned.m8n8.x4{transposed}.shared.b16 {{%0,%1,%2,%3}}, [%4];"',
        '    : "=r"(b0), "=r"(b1), "=r"(b2), "=r"(b3) : "r"(address));',
    ]
    for c, b in ((0, ("b0", "b1")), (4, ("b2", "b3"))):
        lines += [
            f'  asm volatile("{product} {{%0,%1,%2,%3}}, {{%4,%5,%6,%7}}, {{%8,%9}}, {{%0,%1,%2,%3}};"',
            f'    : "+f"(c[{c}]), "+f"(c[{c + 1}]), "+f"(c[{c + 2}]), "+f"(c[{c + 3}])',
            f'    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"({b[0]}), "r"({b[1]}));',
        ]
    return "\n".join([*lines, "}"]) + "\n"


@lru_cache(maxsize=16)
def register(name: str) -> None:
    """Make the intrinsic known to TVM, once."""
    dtype, stored = name.rsplit("_", 2)[1:]
    tvm_dtype = DTYPES[dtype][0]
    source = device_source(name, dtype, stored)
    place_b = (lambda k, j: (j, k)) if stored == "nk" else (lambda k, j: (k, j))
    TensorIntrin.register(
        name, _description(tvm_dtype, place_b), _implementation(tvm_dtype, name, source), override=True
    )


def _description(dtype: str, place_b):
    place = mma_place

    @T.prim_func(s_tir=True)
    def description(c: T.handle, a: T.handle, b: T.handle):
        C = T.match_buffer(c, (32, 8), "float32", scope="warp", offset_factor=8)
        A = T.match_buffer(a, (32, 8), dtype, scope="warp", offset_factor=8)
        B = T.match_buffer(b, (16, 16), dtype, scope="shared.dyn", offset_factor=1)
        with T.sblock("root"):
            T.reads(C[0:32, 0:8], A[0:32, 0:8], B[0:16, 0:16])
            T.writes(C[0:32, 0:8])
            for i, j, k in T.grid(16, 16, 16):
                with T.sblock("product"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    c_lane, c_slot = T.meta_var(place(vi, vj))
                    a_lane, a_slot = T.meta_var(place(vi, vk))
                    b0, b1 = T.meta_var(place_b(vk, vj))
                    T.reads(C[c_lane, c_slot], A[a_lane, a_slot], B[b0, b1])
                    T.writes(C[c_lane, c_slot])
                    C[c_lane, c_slot] = C[c_lane, c_slot] + T.cast(A[a_lane, a_slot], "float32") * T.cast(
                        B[b0, b1], "float32"
                    )

    return description


def _implementation(dtype: str, name: str, source: str):
    @T.prim_func(s_tir=True)
    def implementation(c: T.handle, a: T.handle, b: T.handle):
        s0 = T.int32()
        s1 = T.int32()
        C = T.match_buffer(c, (32, 8), "float32", scope="warp", offset_factor=8)
        A = T.match_buffer(a, (32, 8), dtype, scope="warp", offset_factor=8)
        B = T.match_buffer(b, (16, 16), dtype, scope="shared.dyn", offset_factor=1, strides=[s0, s1])
        with T.sblock("root"):
            T.reads(C[0:32, 0:8], A[0:32, 0:8], B[0:16, 0:16])
            T.writes(C[0:32, 0:8])
            for lane in T.thread_binding(32, "threadIdx.x"):
                T.evaluate(
                    T.cuda.func_call(
                        name, T.address_of(C[lane, 0]), T.address_of(A[lane, 0]), B.access_ptr("r"), s0,
                        source_code=source,
                    )
                )  # fmt: skip

    return implementation
