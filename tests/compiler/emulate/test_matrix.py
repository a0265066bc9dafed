"""ldmatrix and mma.sync inside named device functions, as kdsl's intrinsics are, against NumPy."""

import numpy as np
import pytest

from kdsl.emulate.launches import Buffer
from kdsl.emulate.run import emulate
from kdsl.validate import bfloat16

TYPES = {"bf16": ("nv_bfloat16", "bf16"), "f16": ("half", "f16")}

# C = A B for 16 x 16 tiles; A goes through ldmatrix, B is stored [n][k] (nk) or [k][n] (kn, transposed on the
# way).
KERNEL = r"""
__device__ __forceinline__ void load_a(unsigned* a, const T* tile, int ld) {
  unsigned lane = threadIdx.x;
  unsigned at = (unsigned)__cvta_generic_to_shared(tile + (lane & 15) * ld + (lane >> 4) * 8);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(at));
}
__device__ __forceinline__ void kdsl_mma(float* c, const unsigned* a, const T* b_, int ld) {
  unsigned b0, b1, b2, b3; int t = threadIdx.x;
  const T* p = b_ + ROW * ld + COLUMN;
  unsigned at = (unsigned)__cvta_generic_to_shared(p);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4TRANS.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(b0), "=r"(b1), "=r"(b2), "=r"(b3) : "r"(at));
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.PTX.PTX.f32 "
    "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
    : "+f"(c[0]),"+f"(c[1]),"+f"(c[2]),"+f"(c[3]) : "r"(a[0]),"r"(a[1]),"r"(a[2]),"r"(a[3]),"r"(b0),"r"(b1));
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.PTX.PTX.f32 "
    "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
    : "+f"(c[4]),"+f"(c[5]),"+f"(c[6]),"+f"(c[7]) : "r"(a[0]),"r"(a[1]),"r"(a[2]),"r"(a[3]),"r"(b2),"r"(b3));
}
extern "C" __global__ void __launch_bounds__(32) product(const T* __restrict__ A, const T* __restrict__ B,
                                                         float* __restrict__ C) {
  __shared__ alignas(64) T tiles[768];
  alignas(64) unsigned a[4];
  alignas(64) float c[8];
  for (int i = 0; i < 8; ++i) {
    tiles[(i * 2 + (threadIdx.x >> 4)) * 24 + (threadIdx.x & 15)] = A[i * 32 + threadIdx.x];
    tiles[(i * 2 + (threadIdx.x >> 4)) * 24 + (threadIdx.x & 15) + 384] = B[i * 32 + threadIdx.x];
    c[i] = 0x0p+0f/*0.000000e+00*/;
  }
  __syncthreads();
  load_a((&(a[0])), (&(tiles[0])), 24);
  kdsl_mma((&(c[0])), (&(a[0])), (&(tiles[384])), STRIDE);
  for (int i = 0; i < 8; ++i) {
    C[(threadIdx.x / 4 + (i & 3) / 2 * 8) * 16 + i / 4 * 8 + threadIdx.x % 4 * 2 + (i & 1)] = c[i];
  }
}
"""
LAYOUT = {
    "nk": {"ROW": "((t >> 4) * 8 + (t & 7))", "COLUMN": "((t >> 3) & 1) * 8", "TRANS": ""},
    "kn": {"ROW": "(t & 15)", "COLUMN": "(t >> 4) * 8", "TRANS": ".trans"},
}


def kernel(dtype: str, layout: str, stride: int = 24) -> str:
    name, ptx = TYPES[dtype]
    text = KERNEL.replace("const T*", f"const {name}*").replace("alignas(64) T", f"alignas(64) {name}")
    for key, value in {**LAYOUT[layout], "PTX": ptx, "STRIDE": str(stride)}.items():
        text = text.replace(key, value)
    return text


def run(source: str, dtype: str):
    rng = np.random.default_rng(3)
    values = [rng.standard_normal((16, 16)).astype(np.float32) for _ in range(2)]
    stored = [bfloat16.encode(x) if dtype == "bf16" else x.astype(np.float16) for x in values]
    a, b = (bfloat16.decode(x) if dtype == "bf16" else x.astype(np.float32) for x in stored)
    c = np.zeros((16, 16), np.float32)
    arguments = (Buffer(stored[0], "input"), Buffer(stored[1], "input"), Buffer(c, "output"))
    return emulate([(source, "product", (1, 1, 1), (32, 1, 1), 0, arguments)]), a, b, c


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layout", LAYOUT)
def test_product(dtype, layout):
    result, a, b, c = run(kernel(dtype, layout), dtype)
    assert result.verdict == "pass", result.explain()
    np.testing.assert_allclose(c, a @ (b.T if layout == "nk" else b), rtol=1e-5, atol=1e-5)


def test_matrix_loads_of_padded_rows_have_no_conflicts():
    result, *_ = run(kernel("bf16", "nk"), "bf16")
    loads = [s for s in result.shared if s.access == "ldmatrix"]
    assert [(s.instructions, s.wavefronts, s.ideal) for s in loads] == [(1, 4, 4), (1, 4, 4)]


def test_wrong_row_stride_is_seen_in_the_result_or_before():
    """16 where the tile has 24: the addresses are aligned and inside the tile, the numbers are others."""
    result, a, b, c = run(kernel("bf16", "nk", stride=16), "bf16")
    assert result.verdict == "fail" or not np.allclose(c, a @ b.T, rtol=1e-2, atol=1e-2)
    assert {f.kind for f in result.findings} == {"uninitialised"}  # the padding between rows


def test_row_stride_that_breaks_alignment_is_named_with_its_line():
    source = kernel("bf16", "nk", stride=20)
    result, *_ = run(source, "bf16")
    finding = next(f for f in result.findings if f.kind == "misaligned")
    assert "kdsl_mma(" in source.splitlines()[finding.line - 1]
    assert finding.bytes == 16


def test_wrong_swizzle_changes_the_result():
    """Rows written at column c ^ 8 where the row is odd, and read as if they were not."""
    written = "tiles[(i * 2 + (threadIdx.x >> 4)) * 24 + (threadIdx.x & 15) + 384]"
    source = kernel("bf16", "nk")
    swizzled = source.replace(
        written, written.replace("(threadIdx.x & 15)", "((threadIdx.x & 15) ^ ((threadIdx.x >> 4) * 8))")
    )
    assert swizzled != source
    result, a, b, c = run(swizzled, "bf16")
    assert result.verdict == "pass"
    assert not np.allclose(c, a @ b.T, rtol=1e-1, atol=1e-1)


def test_matrix_load_without_a_barrier_races():
    source = kernel("f16", "kn").replace("__syncthreads();", "")
    result, *_ = run(source, "f16")
    races = [f for f in result.findings if f.kind == "race"]
    assert races and all(f.detail == "read-after-write" for f in races)


def test_half_a_warp_cannot_multiply():
    a, c = np.zeros((16, 16), np.float16), np.zeros((16, 16), np.float32)
    arguments = (Buffer(a, "input"), Buffer(a.copy(), "input"), Buffer(c, "output"))
    result = emulate([(kernel("f16", "nk"), "product", (1, 1, 1), (16, 1, 1), 0, arguments)])
    assert "divergence" in {f.kind for f in result.findings}
