"""Sums of squares of 16 rows on Tensor Cores: the diagonal of the product of a tile with its own transpose.

A row of an operand A is a column of the operand B of the transposed tile, and the lanes hold both alike, so one load
of the tile serves both. Fragment maps: PTX ISA, "Matrix Fragments for mma.m16n8k16".
"""

from __future__ import annotations

from functools import lru_cache

from kdsl.lower.intrinsics.matrix import DTYPES, LEFT_ROWS, load_fragment, multiply
from kdsl.lower.tvm import T, TensorIntrin

PREFIX = "kdsl_squares_"
ROWS, DEPTH = 16, 16


def device_source(name: str, dtype: str, depth: int) -> str:
    """CUDA: `x`, 16 rows of `depth` elements in shared memory, `ld` elements apart; lane i adds the sum of row i to
    `sums[i]`."""
    _, ctype, ptx = DTYPES[dtype]
    lines = [
        f"__device__ __forceinline__ void {name}(float* sums, const {ctype}* x_, int ld) {{",
        "  int lane = threadIdx.x;",
        "  float c[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};",
        "  #pragma unroll",
        f"  for (int k = 0; k < {depth}; k += {DEPTH}) {{",
        *load_fragment("x", False, f"k + {LEFT_ROWS['mk'].format(ld='ld')}"),
    ]
    lines += [
        *multiply(ptx, "x", "x", (0, 2), (1, 3)),  # rows 0 to 7 as columns, then rows 8 to 15
        "  }",
        "  int odd = lane >> 2 & 1;  // of a lane's two elements in a row, the one on the diagonal",
        "  int at = (lane & 7) * 4 + ((lane & 7) >> 1);  // the lane that holds it",
        "  float low = __shfl_sync(0xffffffffu, odd ? c[1] : c[0], at);",
        "  float high = __shfl_sync(0xffffffffu, odd ? c[7] : c[6], at);",
        f"  if (lane < {ROWS}) sums[lane] += lane < 8 ? low : high;",
        "}",
    ]
    return "\n".join(lines) + "\n"


@lru_cache(maxsize=16)
def register(name: str) -> None:
    """Make the intrinsic known to TVM, once."""
    *_, dtype, depth = name.split("_")
    tvm_dtype, source = DTYPES[dtype][0], device_source(name, dtype, int(depth))
    TensorIntrin.register(
        name, _description(tvm_dtype, int(depth)), _implementation(tvm_dtype, int(depth), name, source), override=True
    )


def _description(dtype: str, depth: int):
    @T.prim_func(s_tir=True)
    def description(c: T.handle, x: T.handle):
        C = T.match_buffer(c, (ROWS,), "float32", scope="shared.dyn", offset_factor=1)
        X = T.match_buffer(x, (ROWS, depth), dtype, scope="shared.dyn", offset_factor=1)
        with T.sblock("root"):
            T.reads(C[0:ROWS], X[0:ROWS, 0:depth])
            T.writes(C[0:ROWS])
            for i, k in T.grid(ROWS, depth):
                with T.sblock("squares"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    T.reads(C[vi], X[vi, vk])
                    T.writes(C[vi])
                    C[vi] = C[vi] + T.cast(X[vi, vk], "float32") * T.cast(X[vi, vk], "float32")

    return description


def _implementation(dtype: str, depth: int, name: str, source: str):
    @T.prim_func(s_tir=True)
    def implementation(c: T.handle, x: T.handle):
        s0 = T.int32()
        s1 = T.int32()
        C = T.match_buffer(c, (ROWS,), "float32", scope="shared.dyn", offset_factor=1)
        X = T.match_buffer(x, (ROWS, depth), dtype, scope="shared.dyn", offset_factor=1, strides=[s0, s1])
        with T.sblock("root"):
            T.reads(C[0:ROWS], X[0:ROWS, 0:depth])
            T.writes(C[0:ROWS])
            for lane in T.thread_binding(32, "threadIdx.x"):  # noqa: B007
                T.evaluate(
                    T.cuda.func_call(
                        name, C.access_ptr("rw"), X.access_ptr("r"), s0, source_code=source,
                    )
                )  # fmt: skip

    return implementation
