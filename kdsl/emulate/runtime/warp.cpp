// What a warp does as one: shuffles, votes, matrix loads and products. Each lane hands in its operands and waits; when
// all have come, the work is done once for the warp.

#include <algorithm>
#include <cstring>

#include "../device/numbers.h"
#include "findings.h"
#include "state.h"

namespace kdsl {
namespace {

template <class Work> void each_lane(Warp& warp, uint32_t lanes, Work work) {
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if (lanes >> lane & 1) work(lane, *warp.thread[lane]);
  }
}

// Findings of work that is done for a thread name that thread and its line.
void act_for(Thread& thread) {
  state.self = &thread;
  line = thread.line;
}

// PTX ISA, shfl.sync: the lane that `lane` reads from, itself where the source would lie outside its segment.
unsigned source_lane(Shuffle kind, unsigned lane, uint32_t operand, uint32_t width) {
  const unsigned first = lane & ~(width - 1), last = first + width - 1;
  const int64_t signed_lane = lane;
  switch (kind) {
    case Shuffle::index: return first | (operand & (width - 1));
    case Shuffle::up: return signed_lane - int64_t(operand) < int64_t(first) ? lane : lane - operand;
    case Shuffle::down: return signed_lane + int64_t(operand) > int64_t(last) ? lane : lane + operand;
    case Shuffle::exchange: return (lane ^ operand) > last ? lane : lane ^ operand;
  }
  return lane;
}

void resolve_shuffle(Warp& warp, uint32_t lanes) {
  each_lane(warp, lanes, [&](unsigned lane, Thread& thread) {
    const unsigned from = source_lane(Shuffle(uint32_t(thread.in[3])), lane, thread.in[1], thread.in[2]);
    if (from < kLanes && (lanes >> from & 1)) {
      thread.out[0] = warp.thread[from]->in[0];
    } else {
      act_for(thread);
      report({.kind = "absent_lane", .offset = int64_t(from)});
      thread.out[0] = 0xffffffff;
    }
  });
}

void resolve_ballot(Warp& warp, uint32_t lanes) {
  uint32_t votes = 0;
  each_lane(warp, lanes, [&](unsigned lane, Thread& thread) { votes |= uint32_t(thread.in[0]) << lane; });
  each_lane(warp, lanes, [&](unsigned, Thread& thread) { thread.out[0] = votes; });
}

// Only a barrier of the whole warp orders memory here; one of some lanes orders those lanes alone, which is not kept.
void resolve_barrier(Warp& warp, uint32_t lanes) {
  if (lanes == warp.existing()) warp.synchronised = ++state.clock;
  learn_from_warp(warp, lanes);
}

using Row = u16[8];
constexpr unsigned kRowBytes = 16 * kScale;
constexpr uint32_t kNoRow = UINT32_MAX;

// Rows of 8 elements: lane 8 m + i holds the address of row i of matrix m.
void resolve_load_matrices(Warp& warp, uint32_t) {
  const unsigned matrices = warp.thread[0]->in[1];
  const bool transposed = warp.thread[0]->in[2] != 0;
  Row rows[32];
  uint32_t addresses[32];
  for (unsigned lane = 0; lane < 8 * matrices; ++lane) {
    Thread& thread = *warp.thread[lane];
    act_for(thread);
    addresses[lane] = thread.in[0];
    const uintptr_t row = generic_address(thread.in[0]);
    const bool readable = check_read(state.window, row, kRowBytes, kRowBytes);
    if (readable) std::memcpy(rows[lane], reinterpret_cast<const void*>(row), kRowBytes);
    else std::memset(static_cast<void*>(rows[lane]), 0xff, kRowBytes);
  }
  count_rows(warp.thread[0]->line, kLoadMatrix, addresses, 8 * matrices);
  each_lane(warp, 0xffffffff, [&](unsigned lane, Thread& thread) {
    const unsigned major = lane / 4, minor = lane % 4 * 2;
    for (unsigned m = 0; m < matrices; ++m) {
      const Row* matrix = rows + 8 * m;
      const u32 low = transposed ? matrix[minor][major] : matrix[major][minor];
      const u32 high = transposed ? matrix[minor + 1][major] : matrix[major][minor + 1];
      thread.out[m] = low | high << 16;
    }
  });
}

void resolve_store_matrices(Warp& warp, uint32_t) {
  const unsigned matrices = warp.thread[0]->in[1];
  const bool transposed = warp.thread[0]->in[2] != 0;
  Row rows[32];
  each_lane(warp, 0xffffffff, [&](unsigned lane, Thread& thread) {
    const unsigned major = lane / 4, minor = lane % 4 * 2;
    for (unsigned m = 0; m < matrices; ++m) {
      for (unsigned half = 0; half < 2; ++half) {
        const auto value = u16(thread.in[3 + m] >> 16 * half);
        (transposed ? rows[8 * m + minor + half][major] : rows[8 * m + major][minor + half]) = value;
      }
    }
  });
  uint32_t addresses[32];
  for (unsigned lane = 0; lane < 8 * matrices; ++lane) {
    Thread& thread = *warp.thread[lane];
    act_for(thread);
    addresses[lane] = thread.in[0];
    const uintptr_t row = generic_address(thread.in[0]);
    if (!check_write(state.window, row, kRowBytes, kRowBytes, {rows[lane], nullptr})) continue;
    stamp_write(state.window, row, kRowBytes, {state.clock, thread.number, uint32_t(line)});
    std::memcpy(reinterpret_cast<void*>(row), rows[lane], kRowBytes);
  }
  count_rows(warp.thread[0]->line, kStoreMatrix, addresses, 8 * matrices);
}

void resolve_transpose(Warp& warp, uint32_t lanes) {
  u16 matrix[8][8];
  each_lane(warp, lanes, [&](unsigned lane, Thread& thread) { std::memcpy(static_cast<void*>(&matrix[lane / 4][lane % 4 * 2]), thread.in, 4 * kScale); });
  each_lane(warp, lanes, [&](unsigned lane, Thread& thread) {
    thread.out[0] = u32(matrix[lane % 4 * 2][lane / 4]) | u32(matrix[lane % 4 * 2 + 1][lane / 4]) << 16;
  });
}

// --- products -----------------------------------------------------------------------------------------------------

template <Element element> f32 value_of(u32 bits) {
  if constexpr (element == Element::bf16) return value_of_bfloat16(u16(bits));
  if constexpr (element == Element::f16) return value_of_half(u16(bits));
  return value_of_tf32(bits);
}

// Lane l holds columns l % 4 (of pairs for 16-bit elements) and rows, or for b columns, l / 4; registers go by 8 rows,
// then by the second half of the depth. PTX ISA, "Matrix fragments for mma.m16n8k16" and its neighbours.
template <Element element, unsigned depth> void resolve_multiply(Warp& warp, uint32_t) {
  constexpr unsigned packed = element == Element::tf32 ? 1 : 2, span = 4 * packed, halves = depth / span;
  f32 a[16][depth], b[depth][8], d[16][8];
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const Thread& thread = *warp.thread[lane];
    for (unsigned half = 0; half < halves; ++half) {
      for (unsigned i = 0; i < packed; ++i) {
        const unsigned k = half * span + lane % 4 * packed + i;
        a[lane / 4][k] = value_of<element>(thread.in[2 * half] >> 16 * i);
        a[lane / 4 + 8][k] = value_of<element>(thread.in[2 * half + 1] >> 16 * i);
        b[k][lane / 4] = value_of<element>(thread.in[4 + half] >> 16 * i);
      }
    }
    for (unsigned i = 0; i < 4; ++i) d[lane / 4 + 8 * (i / 2)][lane % 4 * 2 + i % 2] = thread.c[i];
  }
  for (unsigned row = 0; row < 16; ++row) {
    for (unsigned k = 0; k < depth; ++k) {
      for (unsigned column = 0; column < 8; ++column) d[row][column] += a[row][k] * b[k][column];
    }
  }
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    for (unsigned i = 0; i < 4; ++i) warp.thread[lane]->d[i] = d[lane / 4 + 8 * (i / 2)][lane % 4 * 2 + i % 2];
  }
}

struct Product { Element element; unsigned depth; const char* name; void (*resolve)(Warp&, uint32_t); };
constexpr Product kProducts[] = {
    {Element::bf16, 16, "mma.m16n8k16 of bf16", resolve_multiply<Element::bf16, 16>},
    {Element::f16, 16, "mma.m16n8k16 of f16", resolve_multiply<Element::f16, 16>},
    {Element::bf16, 8, "mma.m16n8k8 of bf16", resolve_multiply<Element::bf16, 8>},
    {Element::f16, 8, "mma.m16n8k8 of f16", resolve_multiply<Element::f16, 8>},
    {Element::tf32, 8, "mma.m16n8k8 of tf32", resolve_multiply<Element::tf32, 8>},
    {Element::tf32, 4, "mma.m16n8k4 of tf32", resolve_multiply<Element::tf32, 4>},
};
constexpr const char* kLoadName[] = {"", "ldmatrix.x1", "ldmatrix.x2", "", "ldmatrix.x4"};
constexpr const char* kStoreName[] = {"", "stmatrix.x1", "stmatrix.x2", "", "stmatrix.x4"};

}  // namespace

u32 shuffle(Shuffle kind, uint32_t lanes, u32 value, uint32_t operand, uint32_t width) {
  Thread& self = *state.self;
  self.in[0] = value, self.in[1] = operand, self.in[2] = width, self.in[3] = uint32_t(kind);
  collective("shfl.sync", lanes, false, resolve_shuffle);
  return self.out[0];
}

uint32_t ballot(uint32_t lanes, bool predicate) {
  state.self->in[0] = predicate;
  Thread& self = *state.self;
  collective("vote.sync", lanes, false, resolve_ballot);
  return self.out[0];
}

unsigned own_lane() { return state.self->lane; }

void warp_barrier(uint32_t lanes) { collective("syncwarp", lanes, false, resolve_barrier); }

void load_matrices(u32* fragments, unsigned matrices, bool transposed, uint32_t row) {
  Thread& self = *state.self;
  self.in[0] = row, self.in[1] = matrices, self.in[2] = transposed;
  collective(kLoadName[matrices], 0xffffffff, true, resolve_load_matrices);
  std::copy_n(self.out, matrices, fragments);
}

void store_matrices(const u32* fragments, unsigned matrices, bool transposed, uint32_t row) {
  Thread& self = *state.self;
  self.in[0] = row, self.in[1] = matrices, self.in[2] = transposed;
  std::copy_n(fragments, matrices, self.in + 3);
  collective(kStoreName[matrices], 0xffffffff, true, resolve_store_matrices);
}

u32 transpose_matrix(u32 fragment) {
  Thread& self = *state.self;
  self.in[0] = fragment;
  collective("movmatrix", 0xffffffff, true, resolve_transpose);
  return self.out[0];
}

void multiply(Element element, unsigned depth, const u32* a, const u32* b, const f32* c, f32* d) {
  Thread& self = *state.self;
  const unsigned of_b = depth / (element == Element::tf32 ? 4 : 8);
  std::copy_n(a, 2 * of_b, self.in);
  std::copy_n(b, of_b, self.in + 4);
  std::copy_n(c, 4, self.c);
  for (const Product& product : kProducts) {
    if (product.element == element && product.depth == depth) {
      collective(product.name, 0xffffffff, true, product.resolve);
    }
  }
  std::copy_n(self.d, 4, d);
}

}  // namespace kdsl
