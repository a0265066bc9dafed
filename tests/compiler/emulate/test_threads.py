"""Shuffles, warp reductions as TVM lowers them, and threads that never meet."""

import numpy as np
import pytest

from kdsl.emulate.launches import Buffer
from kdsl.emulate.run import emulate

HEAD = 'extern "C" __global__ void k(float* y) {\n'
# Sum of squares of a row of 256: what TVM makes of a reduction that is bound to threadIdx.x.
ALLREDUCE = r"""
extern "C" __global__ void __launch_bounds__(256) rows(float* __restrict__ A_ptr, float* __restrict__ B_ptr) {
  __shared__ alignas(64) float red_result_ptr[1];
  alignas(64) float red_buf0_ptr[1];
  __shared__ alignas(64) float red_buf_staging_ptr[8];
  alignas(64) float t0_ptr[1];
  alignas(64) uint mask_ptr[1];
  alignas(64) uint mask_ptr_1[1];
  alignas(64) float red_buf0_ptr_1[1];
  alignas(64) float t0_ptr_1[1];
  red_buf0_ptr[0] = (A_ptr[((((int)blockIdx.x) * 256) + ((int)threadIdx.x))] *
                     A_ptr[((((int)blockIdx.x) * 256) + ((int)threadIdx.x))]);
  mask_ptr[0] = __activemask();
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 16, 32);
  red_buf0_ptr[0] = (red_buf0_ptr[0] + t0_ptr[0]);
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 8, 32);
  red_buf0_ptr[0] = (red_buf0_ptr[0] + t0_ptr[0]);
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 4, 32);
  red_buf0_ptr[0] = (red_buf0_ptr[0] + t0_ptr[0]);
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 2, 32);
  red_buf0_ptr[0] = (red_buf0_ptr[0] + t0_ptr[0]);
  t0_ptr[0] = __shfl_down_sync(mask_ptr[0], red_buf0_ptr[0], 1, 32);
  red_buf0_ptr[0] = (red_buf0_ptr[0] + t0_ptr[0]);
  if ((((int)threadIdx.x) % 32) == 0) {
    red_buf_staging_ptr[(((int)threadIdx.x) >> 5)] = red_buf0_ptr[0];
  }
  __syncthreads();
  if (((int)threadIdx.x) < 8) {
    red_buf0_ptr_1[0] = red_buf_staging_ptr[((int)threadIdx.x)];
  }
  mask_ptr_1[0] = __activemask();
  t0_ptr_1[0] = __shfl_down_sync(mask_ptr_1[0], red_buf0_ptr_1[0], 4, 32);
  red_buf0_ptr_1[0] = (red_buf0_ptr_1[0] + t0_ptr_1[0]);
  t0_ptr_1[0] = __shfl_down_sync(mask_ptr_1[0], red_buf0_ptr_1[0], 2, 32);
  red_buf0_ptr_1[0] = (red_buf0_ptr_1[0] + t0_ptr_1[0]);
  t0_ptr_1[0] = __shfl_down_sync(mask_ptr_1[0], red_buf0_ptr_1[0], 1, 32);
  red_buf0_ptr_1[0] = (red_buf0_ptr_1[0] + t0_ptr_1[0]);
  if (((int)threadIdx.x) == 0) {
    ((volatile float*)red_result_ptr)[0] = red_buf0_ptr_1[0];
  }
  __syncthreads();
  if (((int)threadIdx.x) == 0) {
    B_ptr[((int)blockIdx.x)] = ((volatile float*)red_result_ptr)[0];
  }
}
"""

SHUFFLES = r"""
extern "C" __global__ void lanes(int* y) {
  int lane = (int)threadIdx.x;
  y[lane] = __shfl_sync(0xffffffff, lane, 40, 16);
  y[32 + lane] = __shfl_up_sync(0xffffffff, lane, 3, 8);
  y[64 + lane] = __shfl_down_sync(0xffffffff, lane, 3, 8);
  y[96 + lane] = __shfl_xor_sync(0xffffffff, lane, 5);
  y[128 + lane] = (int)__shfl_xor_sync(0xffffffff, (double)lane, 1);
  if (lane % 2 == 0) {
    y[160 + lane] = (int)__activemask();
  } else {
    y[160 + lane] = (int)__ballot_sync(0xaaaaaaaa, lane > 16);
  }
}
"""


def run(source, symbol, y, threads=32, x=None, grid=1, **options):
    arguments = [Buffer(y, "output")] if x is None else [Buffer(x, "input"), Buffer(y, "output")]
    return emulate([(source, symbol, (grid, 1, 1), (threads, 1, 1), 0, arguments)], **options)


def test_allreduce_of_tvm():
    x, y = np.random.default_rng(0).standard_normal((3, 256)).astype(np.float32), np.zeros(3, np.float32)
    result = run(ALLREDUCE, "rows", y, 256, x, 3)
    assert result.verdict == "pass", result.explain()
    np.testing.assert_allclose(y, (x * x).sum(1), rtol=1e-5)


@pytest.mark.parametrize("number", [0, 1])
def test_allreduce_without_one_of_its_barriers(number):
    head, *tails = ALLREDUCE.split("  __syncthreads();\n")
    tails = [f"  __syncthreads();\n{tail}" if i != number else tail for i, tail in enumerate(tails)]
    x, y = np.ones((1, 256), np.float32), np.zeros(1, np.float32)
    result = run("".join([head, *tails]), "rows", y, 256, x)
    # The thread that writes the result reads it too, so the second barrier guards nothing.
    assert (
        "race" in {f.kind for f in result.findings} or "uninitialised" in {f.kind for f in result.findings}
    ) == (number == 0)


def test_shuffles():
    y = np.zeros(192, np.int32)
    result = run(SHUFFLES, "lanes", y)
    assert result.verdict == "pass", result.explain()
    lane = np.arange(32)
    index, up, down, exchange, wide, masks = y.reshape(6, 32)
    np.testing.assert_array_equal(index, lane // 16 * 16 + 8)
    np.testing.assert_array_equal(up, np.where(lane % 8 < 3, lane, lane - 3))
    np.testing.assert_array_equal(down, np.where(lane % 8 > 4, lane, lane + 3))
    np.testing.assert_array_equal(exchange, lane ^ 5)
    np.testing.assert_array_equal(wide, lane ^ 1)
    assert set(masks[::2].view(np.uint32)) == {0x55555555}
    assert set(masks[1::2].view(np.uint32)) == {0xAAAA0000 & ~0xFFFF}


BARRIERS = {
    "in a branch": "if ((int)threadIdx.x < 40) {\n __syncthreads();\n }",
    "in two branches": "if ((int)threadIdx.x < 32) {\n __syncthreads();\n } else {\n __syncthreads();\n }",
    "after a return": "if ((int)threadIdx.x == 63) {\n return;\n }\n __syncthreads();",
    "for one more iteration": "for (int i = 0; i < 1 + (int)threadIdx.x / 32; ++i) {\n __syncthreads();\n }",
    "shuffle in a branch": "if ((int)threadIdx.x < 5) {\n y[0] = __shfl_xor_sync(0xffffffff, 1.0f, 1);\n }",
}


@pytest.mark.parametrize("name", BARRIERS)
def test_threads_that_never_meet(name):
    source = HEAD + f"  {BARRIERS[name]}\n  y[(int)threadIdx.x] = 1.0f;\n}}\n"
    result = run(source, "k", np.zeros(64, np.float32), 64)
    finding = next(f for f in result.findings if f.kind == "divergence")
    assert finding.line is not None and finding.thread is not None and finding.other_thread is not None
    assert str(finding.other_thread) in finding.explain()


def test_shuffle_from_a_lane_that_is_not_there():
    source = HEAD + "  y[threadIdx.x] = __shfl_down_sync(0xffffffff, 1.0f, 8, 32);\n}\n"
    result = run(source, "k", np.zeros(24, np.float32), 24)
    assert {f.kind for f in result.findings} == {"absent_lane"}


def test_a_mask_without_the_thread_itself():
    source = HEAD + "  y[threadIdx.x] = __shfl_xor_sync(0xfffffffeu, 1.0f, 0, 32);\n}\n"
    result = run(source, "k", np.zeros(32, np.float32), 32)
    finding = next(f for f in result.findings if f.kind == "left_out")
    assert finding.thread == (0, 0, 0) and "0xfffffffe" in finding.explain()


def test_a_register_that_nobody_wrote_holds_neither_zero_nor_what_was_there():
    y = np.zeros(32, np.float32)
    run(HEAD + "  float held;\n  y[threadIdx.x] = held;\n}\n", "k", y, 32)
    assert (np.abs(y) > 1e30).all()
    mask = "  uint mask[1];\n  y[threadIdx.x] = __shfl_xor_sync(mask[0], 1.0f, 0, 32);\n}\n"
    assert "left_out" in {f.kind for f in run(HEAD + mask, "k", y, 32).findings}


def test_an_endless_loop_is_a_finding():
    source = HEAD + "  int i = 0;\n  while (y[0] != 1.0f) {\n    i = i + 1;\n  }\n}\n"
    result = run(source, "k", np.zeros(4, np.float32), seconds=0.5)
    assert result.findings[-1].kind == "hang"
