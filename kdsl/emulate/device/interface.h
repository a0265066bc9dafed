// What a translated kernel asks of the runtime. The runtime knows which thread asks: it runs one at a time.
#pragma once

#include "words.h"

namespace kdsl {
struct Place { unsigned x, y, z; };
}

// CUDA's built-in variables, for the running thread.
extern KDSL_INTERFACE kdsl::Place threadIdx, blockIdx, blockDim, gridDim;

namespace kdsl {

struct Region;  // one buffer of the launch, or one shared array of the block; the runtime owns it

// The line of the CUDA text that the running thread is at; translated kernels keep it up to date.
extern KDSL_INTERFACE int line;

// `bytes` at `address`, of which `region` says where they may lie; null means the thread's own memory.
// What must not be read comes back as 0xff bytes (NaN in every float type); what must not be written is dropped.
KDSL_INTERFACE void load(const Region* region, uintptr_t address, void* to, unsigned bytes, unsigned alignment);
KDSL_INTERFACE void store(const Region* region, uintptr_t address, const void* from, unsigned bytes, unsigned alignment);
KDSL_INTERFACE void outside_registers(long index, long elements);
KDSL_INTERFACE void outside_emulation(const char* what);  // ends the run: the emulator has no meaning for it

KDSL_INTERFACE const Region* region_of(uintptr_t address);  // the buffer or shared array that holds it, or null
KDSL_INTERFACE uint32_t shared_address(uintptr_t address);  // in the shared window; banks count from its start
KDSL_INTERFACE uintptr_t generic_address(uint32_t shared);
KDSL_INTERFACE const Region* shared_region(uint32_t shared);
KDSL_INTERFACE const Region* static_array(unsigned number);
KDSL_INTERFACE const Region* dynamic_array();
KDSL_INTERFACE uintptr_t base_of(const Region* region);

// Rendezvous of threads.
KDSL_INTERFACE void block_barrier();
KDSL_INTERFACE void warp_barrier(uint32_t lanes);
KDSL_INTERFACE uint32_t active_lanes();
KDSL_INTERFACE unsigned own_lane();
enum class Shuffle { index, up, down, exchange };
KDSL_INTERFACE u32 shuffle(Shuffle kind, uint32_t lanes, u32 value, uint32_t operand, uint32_t width);
KDSL_INTERFACE uint32_t ballot(uint32_t lanes, bool predicate);

// Asynchronous copies to shared memory: `bytes` arrive, of which all after the first `read` are zeros.
KDSL_INTERFACE void copy_async(uint32_t to, const Region* region, uintptr_t from, unsigned bytes, unsigned read);
KDSL_INTERFACE void commit_copies();
KDSL_INTERFACE void wait_copies(unsigned pending_groups);
KDSL_INTERFACE void wait_all_copies();

// Matrix instructions of a whole warp, in the fragment layouts of the PTX manual (section "Matrix fragments").
enum class Element { bf16, f16, tf32 };
KDSL_INTERFACE void load_matrices(u32* fragments, unsigned matrices, bool transposed, uint32_t row);
KDSL_INTERFACE void store_matrices(const u32* fragments, unsigned matrices, bool transposed, uint32_t row);
KDSL_INTERFACE u32 transpose_matrix(u32 fragment);
// d = a b + c for a [16, depth], b [depth, 8] and c, d [16, 8] in float32.
KDSL_INTERFACE void multiply(Element element, unsigned depth, const u32* a, const u32* b, const f32* c, f32* d);

// mbarriers in shared memory, bulk copies that they wait for, and barriers of some threads. A wait returns when the
// phase of that parity is over.
KDSL_INTERFACE void mbarrier_init(uint32_t barrier, uint32_t count);
KDSL_INTERFACE void mbarrier_expect(uint32_t barrier, uint32_t bytes);
KDSL_INTERFACE void mbarrier_arrive(uint32_t barrier, uint32_t count);
KDSL_INTERFACE void mbarrier_wait(uint32_t barrier, uint32_t parity);
KDSL_INTERFACE void copy_bulk(uint32_t to, const Region* region, uintptr_t from, uint32_t bytes, uint32_t barrier);
KDSL_INTERFACE void store_bulk(const Region* region, uintptr_t to, uint32_t from, uint32_t bytes);
KDSL_INTERFACE void commit_bulk();
KDSL_INTERFACE void wait_bulk(uint32_t pending_groups);
KDSL_INTERFACE void barrier_sync(uint32_t barrier, uint32_t threads);
KDSL_INTERFACE void barrier_arrive(uint32_t barrier, uint32_t threads);
KDSL_INTERFACE void proxy_fence();  // what was written goes before what the copy engine and tensor cores read

// d [64, columns] = a [64, 16] b [16, columns] (+ d) of a warpgroup, bfloat16 in and float32 out; a null `a` stands
// behind its descriptor.
KDSL_INTERFACE void multiply_warpgroup(unsigned columns, f32* d, const u32* a, uint64_t a_descriptor,
                                       uint64_t b_descriptor, bool accumulates, bool a_transposed, bool b_transposed);
KDSL_INTERFACE void fence_products();
KDSL_INTERFACE void commit_products();
KDSL_INTERFACE void wait_products(uint32_t pending_groups);
// The result of a product comes to its register when the thread has waited for it; products add to it before that.
KDSL_INTERFACE void hold_result(f32* place, f32 value);
KDSL_INTERFACE f32 result_of(f32* place);
KDSL_INTERFACE f32 no_result();

// One argument of a launch: a buffer, or the bits of a number.
struct Argument { const Region* region; uint64_t bits; };  // a float32 of the fields is two cells
struct StaticArray { size_t bytes, alignment; };
// How the runtime starts a kernel: every library has one `kdsl_kernel_SYMBOL`.
struct Kernel {
  void (*body)(const Argument*);
  const StaticArray* static_arrays;
  unsigned static_array_count, dynamic_alignment;
};

}  // namespace kdsl
