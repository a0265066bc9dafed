"""half and nv_bfloat16 bit for bit, vector loads and stores, and the functions that TVM emits."""

import numpy as np
import pytest

from kdsl.emulate.launches import Buffer
from kdsl.emulate.run import emulate
from kdsl.validate import bfloat16

# As TVM packs eight bfloat16 in a uint4 and takes them apart again.
VECTORS = r"""
extern "C" __global__ void __launch_bounds__(32) main_kernel(
    nv_bfloat16* __restrict__ A_ptr, const float* __restrict__ C_ptr, float* __restrict__ D_ptr) {
  uint4 v_ = *(uint4*)(A_ptr + (((int)threadIdx.x) * 8));
  uint4 __1;
  ulonglong4 v__2 = *(ulonglong4*)(C_ptr + (((int)threadIdx.x) * 8));
    ((nv_bfloat162*)(&(__1.x)))->x = (((nv_bfloat162*)(&(v_.x)))->x*(nv_bfloat16)(((float2*)(&(v__2.x)))->x));
    ((nv_bfloat162*)(&(__1.x)))->y = (((nv_bfloat162*)(&(v_.x)))->y*(nv_bfloat16)(((float2*)(&(v__2.x)))->y));
    ((nv_bfloat162*)(&(__1.y)))->x = (((nv_bfloat162*)(&(v_.y)))->x*(nv_bfloat16)(((float2*)(&(v__2.y)))->x));
    ((nv_bfloat162*)(&(__1.y)))->y = (((nv_bfloat162*)(&(v_.y)))->y*(nv_bfloat16)(((float2*)(&(v__2.y)))->y));
    ((nv_bfloat162*)(&(__1.z)))->x = (((nv_bfloat162*)(&(v_.z)))->x*(nv_bfloat16)(((float2*)(&(v__2.z)))->x));
    ((nv_bfloat162*)(&(__1.z)))->y = (((nv_bfloat162*)(&(v_.z)))->y*(nv_bfloat16)(((float2*)(&(v__2.z)))->y));
    ((nv_bfloat162*)(&(__1.w)))->x = (((nv_bfloat162*)(&(v_.w)))->x*(nv_bfloat16)(((float2*)(&(v__2.w)))->x));
    ((nv_bfloat162*)(&(__1.w)))->y = (((nv_bfloat162*)(&(v_.w)))->y*(nv_bfloat16)(((float2*)(&(v__2.w)))->y));
  *(uint4*)(A_ptr + (((int)threadIdx.x) * 8)) = __1;
  float4 __4;
  float4 v__3 = *(float4*)(C_ptr + (((int)threadIdx.x) * 4));
  __4.x = expf(v__3.x) + rsqrtf(v__3.x);
  __4.y = exp2f(v__3.y) * sqrtf(v__3.y);
  __4.z = max(log1pf(v__3.z), tanhf(v__3.z));
  __4.w = min(fabsf(v__3.w), 0x1p-1f/*5.000000e-01*/);
  *(float4*)(D_ptr + (((int)threadIdx.x) * 4)) = __4;
  *(float4*)(D_ptr + (((int)threadIdx.x) * 4) + 128) =
      make_float4(C_ptr[((int)threadIdx.x) * 4 + 128], 0x1p+0f, 0x0p+0f, __4.w);
}
"""

CONVERSIONS = r"""
extern "C" __global__ void convert(float* x, half* h, nv_bfloat16* b, float* from_h, float* from_b, int n) {
  int i = (int)blockIdx.x * 256 + (int)threadIdx.x;
  if (i < n) {
    h[i] = ((half)x[i]);
    b[i] = __float2bfloat16_rn(x[i]);
    from_h[i] = ((float)h[i]);
    from_b[i] = ((float)b[i]);
  }
}
extern "C" __global__ void arithmetic(half* a, half* b, half* c) {
  int i = (int)blockIdx.x * 256 + (int)threadIdx.x;
  c[i * 4] = a[i] + b[i];
  c[i * 4 + 1] = (a[i] - b[i]);
  c[i * 4 + 2] = (a[i] * b[i]);
  c[i * 4 + 3] = (a[i] / b[i]);
}
"""


def test_vectors_and_functions():
    rng = np.random.default_rng(0)
    c = rng.uniform(0.1, 4, 256).astype(np.float32)
    before = bfloat16.encode(rng.standard_normal(256))
    a, d = before.copy(), np.zeros(256, np.float32)
    arguments = (Buffer(a, "updated"), Buffer(c, "input"), Buffer(d, "output"))
    result = emulate([(VECTORS, "main_kernel", (1, 1, 1), (32, 1, 1), 0, arguments)])
    assert result.verdict == "pass", result.explain()
    np.testing.assert_array_equal(a, bfloat16.encode(bfloat16.decode(before) * bfloat16.rounded(c)))
    x, y, z, w = c[:128].reshape(32, 4).T
    last = np.minimum(np.abs(w), 0.5)
    found = [np.exp(x) + 1 / np.sqrt(x), np.exp2(y) * np.sqrt(y), np.maximum(np.log1p(z), np.tanh(z)), last]
    np.testing.assert_allclose(d[:128].reshape(32, 4).T, found, rtol=2e-6)
    np.testing.assert_array_equal(
        d[128:].reshape(32, 4), [[c[128 + 4 * i], 1, 0, last[i]] for i in range(32)]
    )


def special_floats() -> np.ndarray:
    """Every half and every bfloat16, their halfway points, and numbers of all sizes."""
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    thick = bfloat16.decode(np.arange(65536, dtype=np.uint16))
    between = (halves[:-1].astype(np.float64) + halves[1:]).astype(np.float32) / 2
    bits = np.random.default_rng(0).integers(0, 2**32, 65536, dtype=np.uint32).view(np.float32)
    return np.concatenate([halves, thick, between, thick + thick * np.float32(2**-9), bits]).astype(
        np.float32
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_conversions_round_to_nearest_even():
    x = special_floats()
    n = x.size
    h, b = np.zeros(n, np.float16), np.zeros(n, np.uint16)
    from_h, from_b = np.zeros(n, np.float32), np.zeros(n, np.float32)
    outputs = [Buffer(array, "output") for array in (h, b, from_h, from_b)]
    result = emulate(
        [(CONVERSIONS, "convert", (-(-n // 256), 1, 1), (256, 1, 1), 0, (Buffer(x, "input"), *outputs, n))]
    )
    assert result.verdict == "pass", result.explain()
    number = ~np.isnan(x)
    np.testing.assert_array_equal(h[number], x[number].astype(np.float16))
    np.testing.assert_array_equal(b[number], bfloat16.encode(x[number]))
    assert np.isnan(h[~number]).all() and np.isnan(from_b[~number]).all()
    np.testing.assert_array_equal(from_h, h.astype(np.float32))
    np.testing.assert_array_equal(from_b, bfloat16.decode(b))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_half_arithmetic_is_correctly_rounded():
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 65536, 4096).astype(np.uint16).view(np.float16) for _ in range(2))
    c = np.zeros((4096, 4), np.float16)
    arguments = (Buffer(a, "input"), Buffer(b, "input"), Buffer(c, "output"))
    result = emulate([(CONVERSIONS, "arithmetic", (16, 1, 1), (256, 1, 1), 0, arguments)])
    assert result.verdict == "pass", result.explain()
    np.testing.assert_array_equal(c, np.stack([a + b, a - b, a * b, a / b], axis=1))
