// Two slots of a ring filled by cp.async, read by ldmatrix into mma.sync; the copies of the next step fly meanwhile.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define ROW 24

__device__ __forceinline__ void copy16(void* to, const void* from) {
  unsigned at = (unsigned)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from));
}

__device__ __forceinline__ void multiply(float* c, const unsigned* a, const __nv_bfloat16* tile) {
  unsigned b0, b1, b2, b3, lane = threadIdx.x & 31;
  unsigned at = (unsigned)__cvta_generic_to_shared(tile + (lane & 15) * ROW + (lane >> 4) * 8);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(b0), "=r"(b1), "=r"(b2), "=r"(b3)
               : "r"(at));
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b2));
}

extern "C" __global__ void __launch_bounds__(32)
    pipeline(float* out, const __nv_bfloat16* in, const unsigned* left, int steps) {
  extern __shared__ __align__(16) unsigned char memory[];
  __nv_bfloat16* ring = (__nv_bfloat16*)memory;
  unsigned lane = threadIdx.x & 31, a[4] = {left[lane], left[lane + 32], left[lane + 64], left[lane + 96]};
  float c[4] = {0, 0, 0, 0};
  unsigned to = (lane >> 1) * ROW + (lane & 1) * 8;
  copy16(ring + to, in + lane * 8);
  asm volatile("cp.async.commit_group;");
#pragma unroll 1
  for (int step = 0; step < steps - 1; ++step) {
    __syncthreads();
    copy16(ring + ((step + 1) & 1) * 16 * ROW + to, in + (step + 1) * 256 + lane * 8);
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    multiply(c, a, ring + (step & 1) * 16 * ROW);  // STEADY
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  multiply(c, a, ring + ((steps - 1) & 1) * 16 * ROW);  // LAST
  for (int i = 0; i < 4; ++i) out[lane * 4 + i] = c[i];
}
