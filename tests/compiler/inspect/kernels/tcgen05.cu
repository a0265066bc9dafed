// One product of tensor memory, issued by one thread.
#include <cstdint>
extern "C" __global__ void __launch_bounds__(128) product(float* out, uint64_t a, uint64_t b, uint32_t shape) {
  extern __shared__ char memory[];
  unsigned at = (unsigned)__cvta_generic_to_shared(memory);
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 64;" ::"r"(at));
  uint32_t d = *(volatile uint32_t*)memory, x, y;
  if (threadIdx.x == 0) {
    asm volatile("{.reg .pred p; setp.ne.u32 p, 1, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;}"
                 ::"r"(d), "l"(a), "l"(b), "r"(shape));
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(at + 8));
  }
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x2.b32 {%0,%1}, [%2];" : "=r"(x), "=r"(y) : "r"(d));
  asm volatile("tcgen05.wait::ld.sync.aligned;");
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 64;" ::"r"(d));
  out[threadIdx.x] = x + y;
}
