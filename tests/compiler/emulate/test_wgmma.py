"""wgmma of one warpgroup, its fence, its group and its wait apart, against NumPy."""

import numpy as np
import pytest

from kdsl.emulate.launches import Buffer
from kdsl.emulate.run import emulate
from kdsl.validate import bfloat16

# C = A B twice over, [64, 16] by [16, 8]; A in registers, B [n][k] behind a descriptor without a swizzle.
KERNEL = r"""
__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wait() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
__device__ __forceinline__ void product(float* c, const unsigned* a, unsigned long long b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, 1, 1, 1, 0;"
    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b) : "memory");
}
extern "C" __global__ void __launch_bounds__(128) products(const nv_bfloat16* __restrict__ A,
                                                           const nv_bfloat16* __restrict__ B, float* __restrict__ C) {
  __shared__ alignas(128) nv_bfloat16 tile[128];
  alignas(16) nv_bfloat16 a[8];
  alignas(16) float c[4];
  int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  for (int i = 0; i < 8; ++i) a[i] = A[(row + i / 2 % 2 * 8) * 16 + column + i / 4 * 8 + i % 2];
  for (int i = 0; i < 4; ++i) c[i] = 0.0f;
  tile[threadIdx.x] = B[threadIdx.x % 64 / 8 * 16 + threadIdx.x / 64 * 8 + threadIdx.x % 8];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  unsigned long long b = (unsigned)__cvta_generic_to_shared(tile);
  b = (b >> 4 & 0x3fff) | 0x0000000800080000ull;
  fence();  // first
  product(c, reinterpret_cast<const unsigned*>(a), b);
  product(c, reinterpret_cast<const unsigned*>(a), b);
  commit();
  wait();  // last
  for (int i = 0; i < 4; ++i) C[(row + i / 2 * 8) * 8 + column + i % 2] = c[i];
}
"""


def run(old: str = "", new: str = ""):
    """What the emulator says of the kernel with a part exchanged, the kernel's C and NumPy's."""
    assert old in KERNEL
    rng = np.random.default_rng(5)
    a, b = (bfloat16.encode(rng.standard_normal(shape)) for shape in ((64, 16), (8, 16)))
    c = np.full((64, 8), np.nan, np.float32)
    arguments = (Buffer(a, "input"), Buffer(b, "input"), Buffer(c, "output"))
    result = emulate([(KERNEL.replace(old, new), "products", (1, 1, 1), (128, 1, 1), 0, arguments)], target="sm_90a")
    return result, c, 2 * bfloat16.decode(a) @ bfloat16.decode(b).T


def test_two_products_add_before_one_wait():
    result, c, wanted = run()
    assert result.verdict == "pass", result.explain()
    np.testing.assert_allclose(c, wanted, atol=1e-4)


@pytest.mark.parametrize("old, new, kind", [
    ("  fence();  // first\n", "", "unordered"),
    ("  commit();\n", "  commit();\n  wait();\n  product(c, reinterpret_cast<const unsigned*>(a), b);\n  commit();\n",
     "unordered"),
    ("  wait();  // last\n", "  c[1] = 1.0f;\n  wait();\n", "unsettled"),
])  # fmt: skip
def test_what_orders_registers_is_missed(old, new, kind):
    result, _, _ = run(old, new)
    assert [finding.kind for finding in result.findings] == [kind], result.explain()


@pytest.mark.parametrize("old, new", [
    ("  wait();  // last\n", ""),
    ("  commit();\n  wait();  // last\n", "  wait();\n"),  # a group that is not closed is not waited for
    ("wait_group.sync.aligned 0", "wait_group.sync.aligned 1"),
])  # fmt: skip
def test_what_is_not_waited_for_is_no_result(old, new):
    _, c, _ = run(old, new)
    assert np.isnan(c).all()


def test_an_older_group_is_there_while_a_newer_one_runs():
    """Two accumulators: the wait covers the first, and the product of the second needs no fence of its own."""
    more = "  commit();\n  product(d, reinterpret_cast<const unsigned*>(a), b);\n  commit();\n"
    text = {
        "  alignas(16) float c[4];\n": "  alignas(16) float c[4];\n  alignas(16) float d[4];\n",
        "c[i] = 0.0f;": "{ c[i] = 0.0f; d[i] = 0.0f; }",
        "  commit();\n  wait();  // last\n": more + "  wait_but_one();\n",
        "wait() {": 'wait_but_one() { asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory"); }\n'
        "__device__ __forceinline__ void wait() {",
    }
    changed = KERNEL
    for old, new in text.items():
        changed = changed.replace(old, new)
    result, c, wanted = run(KERNEL, changed)
    assert result.verdict == "pass", result.explain()
    np.testing.assert_allclose(c, wanted, atol=1e-4)
