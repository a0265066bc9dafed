// Two products in flight and work that does not touch them; and a kernel that reads an accumulator in flight.
#include <cstdint>

#define PRODUCT(d)                                                                                        \
  asm volatile(                                                                                           \
      "{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "         \
      "{%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, p, 1, 1, 0, 0;}"                                                \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])   \
      : "l"(left), "l"(right))
#define FENCE asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define COMMIT asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WAIT asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory")

extern "C" __global__ void __launch_bounds__(128)
    overlapping(float* out, const float* in, float* other, uint64_t left, uint64_t right, int n) {
  float d[8];
  for (int i = 0; i < 8; i++) d[i] = 0;
#pragma unroll 1
  for (int step = 0; step < n; ++step) {
    FENCE;
    PRODUCT(d);
    PRODUCT(d);
    COMMIT;
    for (int i = 0; i < 4; ++i) other[i * 128 + threadIdx.x] = in[i * 128 + threadIdx.x] * 3.0f;  // BESIDE
    WAIT;
  }
  for (int i = 0; i < 8; i++) out[i * 128 + threadIdx.x] = d[i];
}

extern "C" __global__ void __launch_bounds__(128)
    serial(float* out, const float* in, uint64_t left, uint64_t right, int n) {
  float d[8];
  for (int i = 0; i < 8; i++) d[i] = out[i];
  for (int step = 0; step < n; ++step) {
    FENCE;
    PRODUCT(d);
    COMMIT;
    for (int i = 0; i < 8; i++) d[i] *= in[step * 8 + i];
    PRODUCT(d);
    COMMIT;
    WAIT;
  }
  for (int i = 0; i < 8; i++) out[i] = d[i];
}
