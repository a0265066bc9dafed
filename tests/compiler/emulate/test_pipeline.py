"""A double-buffered pipeline of asynchronous copies: right as it is, wrong without any one of its parts."""

import numpy as np
import pytest

from kdsl.emulate.launches import Buffer
from kdsl.emulate.run import emulate

# y[block, thread] = sum over steps of x[step, block, 63 - thread], each step staged in one of two slots.
KERNEL = r"""
__forceinline__ __device__ void tvm_builtin_ptx_cp_async_commit_group_async_commit_group() {
  asm volatile("cp.async.commit_group;" :  : );
}
__forceinline__ __device__ void tvm_builtin_ptx_cp_async_wait_group_async_wait_group_0() {
  asm volatile("cp.async.wait_group 0;" :  :  : "memory");
}
__forceinline__ __device__ void tvm_builtin_ptx_cp_async_wait_group_async_wait_group_1() {
  asm volatile("cp.async.wait_group 1;" :  :  : "memory");
}
__forceinline__ __device__ void ptx_cp_async_legacy_ca_BYTES(void* dst, int dst_off, void* src, int src_off) {
  uint8_t* dst_p = (uint8_t*)dst + dst_off * 4;
  uint8_t* src_p = (uint8_t*)src + src_off * 4;
  unsigned int dst_addr = __cvta_generic_to_shared(dst_p);
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
    :: "r"(dst_addr), "l"(src_p), "n"(BYTES));
}
extern "C" __global__ void __launch_bounds__(64) stage(float* __restrict__ x, float* __restrict__ y,
                                                       int steps) {
  extern __shared__ __align__(64) uchar ring[];
  alignas(64) float sum[1];
  sum[0] = 0x0p+0f;
  if ((int)threadIdx.x < 256 / BYTES) {
    ptx_cp_async_legacy_ca_BYTES(ring, (int)threadIdx.x * (BYTES / 4), x,
                                 (int)blockIdx.x * 64 + (int)threadIdx.x * (BYTES / 4));
  }
  tvm_builtin_ptx_cp_async_commit_group_async_commit_group();
  for (int step = 0; step < steps - 1; ++step) {
    __syncthreads();  // slot free
    if ((int)threadIdx.x < 256 / BYTES) {
      ptx_cp_async_legacy_ca_BYTES(ring,
          ((step + 1) & 1) * 64 + (int)threadIdx.x * (BYTES / 4), x,
          ((step + 1) * (int)gridDim.x + (int)blockIdx.x) * 64 + (int)threadIdx.x * (BYTES / 4));
    }
    tvm_builtin_ptx_cp_async_commit_group_async_commit_group();
    tvm_builtin_ptx_cp_async_wait_group_async_wait_group_1();  // in the loop
    __syncthreads();  // slot full
    sum[0] = sum[0] + ((float*)ring)[(step & 1) * 64 + 63 - (int)threadIdx.x];
  }
  tvm_builtin_ptx_cp_async_wait_group_async_wait_group_0();  // last
  __syncthreads();  // last slot full
  sum[0] = sum[0] + ((float*)ring)[((steps - 1) & 1) * 64 + 63 - (int)threadIdx.x];
  y[(int)blockIdx.x * 64 + (int)threadIdx.x] = sum[0];
}
"""
WAIT_1, WAIT_0 = (f"tvm_builtin_ptx_cp_async_wait_group_async_wait_group_{n}();  //" for n in (1, 0))


def run(source: str, size: int = 16, steps: int = 5, **options):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((steps, 3, 64)).astype(np.float32)
    y = np.zeros((3, 64), np.float32)
    arguments = (Buffer(x, "input"), Buffer(y, "output"), steps)
    source = source.replace("BYTES", str(size))
    return emulate([(source, "stage", (3, 1, 1), (64, 1, 1), 512, arguments)], **options), x, y


@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_pipeline(size, seed):
    result, x, y = run(KERNEL, size, seed=seed)
    assert result.verdict == "pass", result.explain()
    np.testing.assert_allclose(y, x.sum(axis=0)[:, ::-1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("dropped, kind", [
    (WAIT_1, "unawaited"),
    (WAIT_0, "unawaited"),
    ("__syncthreads();  // slot free", "race"),
    ("__syncthreads();  // slot full", "race"),
    ("__syncthreads();  // last slot full", "race"),
])  # fmt: skip
def test_every_dropped_part_is_seen(dropped, kind, seed):
    assert KERNEL.count(dropped) == 1
    result, *_ = run(KERNEL.replace(dropped, "//"), seed=seed)
    assert result.verdict == "fail"
    assert kind in {f.kind for f in result.findings}, result.explain()


def test_a_wait_too_weak_is_seen():
    result, *_ = run(KERNEL.replace(WAIT_0, WAIT_1))
    assert {f.kind for f in result.findings} == {"unawaited"}


def test_a_copy_that_no_group_holds_is_never_waited_for():
    commit = "tvm_builtin_ptx_cp_async_commit_group_async_commit_group();"
    head, _, tail = KERNEL.rpartition(commit)
    result, *_ = run(head + tail)
    assert "unawaited" in {f.kind for f in result.findings}


def test_the_finding_names_the_copy_and_the_reader():
    source = KERNEL.replace(WAIT_0, "//")
    result, *_ = run(source)
    finding = result.findings[0]
    lines = source.splitlines()
    assert "sum[0] + ((float*)ring)[((steps - 1)" in lines[finding.line - 1]
    assert "ptx_cp_async_legacy_ca_BYTES(ring" in lines[finding.other_line - 1]
    assert f"copy of line {finding.other_line}" in finding.explain()
    assert finding.times == 3 * 64


def test_misaligned_copy():
    source = KERNEL.replace("ring, (int)threadIdx.x", "ring, 1 + (int)threadIdx.x")
    result, *_ = run(source, 16)
    assert any(f.kind == "misaligned" and f.bytes == 16 and f.detail == "write" for f in result.findings)
