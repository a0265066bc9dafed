// wgmma: products of a warpgroup, with operands in shared memory behind descriptors or in registers. The product is
// computed when all 128 threads have come; its registers count as unwritten, and its operands as being read, until
// each thread has waited for the group.

#include <algorithm>
#include <climits>
#include <cstring>
#include <limits>

#include "../device/numbers.h"
#include "findings.h"
#include "state.h"

namespace kdsl {

struct Operands {
  unsigned columns;
  f32* d;
  const u32* a;      // of this thread, or null: behind its descriptor
  uint64_t a_descriptor, b_descriptor;
  bool accumulates, a_transposed, b_transposed;
  int line;
  bool done;
};

namespace {

constexpr unsigned kRows = 64, kDepth = 16, kGroup = 128, kMostColumns = 256;
constexpr uint32_t kUnsettled = 0x7fe5a5a5;  // a NaN that stands in a register until its product is waited for
std::vector<char> settled;  // by the number that a tail carries; 0 is of no product

// --- operands in shared memory (PTX ISA, "Shared Memory Matrix Layout" of wgmma) --------------------------------

struct Matrix {
  uint32_t start, leading, stride;
  unsigned row_bytes;  // of the swizzle: 16 (none), 32, 64 or 128
  bool transposed;     // rows run along the depth
  explicit Matrix(uint64_t d, bool transposed) : transposed(transposed) {
    start = uint32_t(d & 0x3fff) << 4, leading = uint32_t(d >> 16 & 0x3fff) << 4, stride = uint32_t(d >> 32 & 0x3fff) << 4;
    row_bytes = 16u << (d >> 62 == 0 ? 0 : 4 - unsigned(d >> 62));
    if (d >> 49 & 7) outside_emulation("a matrix descriptor with a base offset");
    if (transposed && row_bytes == 16) outside_emulation("a transposed wgmma operand without a swizzle");
  }
  // The address of eight elements side by side: along the depth from (row, 8 k), or along the rows where transposed.
  uint32_t place(unsigned row, unsigned k) const {
    uint32_t address;
    if (transposed) {
      const unsigned across = row_bytes / 2;
      address = row / across * leading + k / 8 * stride + k % 8 * row_bytes + row % across * 2;
    } else if (row_bytes == 16) {
      address = row / 8 * stride + k / 8 * leading + row % 8 * 16;
    } else {
      address = row / 8 * stride + row % 8 * row_bytes + k * 2;
    }
    address += start;
    return address ^ ((address >> 7 & (row_bytes / 16 - 1)) << 4);
  }
};

struct Eight { u16 element[8]; };

Eight eight_at(uint32_t address, const std::vector<Thread*>& readers) {
  Eight found;
  bool readable = true;
  for (Thread* reader : readers) {
    state.self = reader;
    readable = read_by_engine(address, 16 * kScale) && readable;
  }
  if (readable) std::memcpy(static_cast<void*>(&found), reinterpret_cast<const void*>(generic_address(address)), sizeof found);
  else std::memset(static_cast<void*>(&found), 0xff, sizeof found);
  if (!readable) return found;
  begin_read(readers.front()->products, {address, 16 * kScale, readers.front()->product_groups, nullptr, 0, false});
  return found;
}

void load(const Matrix& matrix, unsigned rows, u16 (*to)[kDepth], const std::vector<Thread*>& readers) {
  for (unsigned row = 0; row < rows; row += matrix.transposed ? 8 : 1) {
    for (unsigned k = 0; k < kDepth; k += matrix.transposed ? 1 : 8) {
      const Eight found = eight_at(matrix.place(row, k), readers);
      for (unsigned i = 0; i < 8; ++i) (matrix.transposed ? to[row + i][k] : to[row][k + i]) = found.element[i];
    }
  }
}

f32 sum_before(const f32& d) {
#ifdef KDSL_FIELD
  return tag_of(d.low()) == kTail ? f32::of(d.high()) : d;  // products of one thread follow each other
#else
  return d;
#endif
}

void set_product(f32& d, const f32& value, [[maybe_unused]] uint32_t number) {
#ifdef KDSL_FIELD
  d = f32::of(kTailCell | number, value.value());
#else
  d = value;
#endif
}

// The number of the product group that a thread is at.
uint32_t group_number(Thread& thread) {
  if (thread.open_product == 0) {
    if (settled.empty()) settled.push_back(1);
    thread.open_product = uint32_t(settled.size());
    settled.push_back(0);
    thread.open_products.push_back({thread.product_groups, thread.open_product});
  }
  return thread.open_product;
}

void multiply_group(Thread* const* threads) {
  static u16 a[kRows][kDepth], b[kMostColumns][kDepth];
  static f32 a_value[kRows][kDepth], b_value[kMostColumns][kDepth];
  const Operands first = *threads[0]->operands;
  const std::vector<Thread*> readers = {threads[0], threads[32], threads[64], threads[96]};
  load(Matrix(first.b_descriptor, first.b_transposed), first.columns, b, readers);
  if (first.a == nullptr) load(Matrix(first.a_descriptor, first.a_transposed), kRows, a, readers);
  for (unsigned t = 0; t < kGroup && first.a != nullptr; ++t) {
    const unsigned row = t / 32 * 16 + t % 32 / 4, k = t % 4 * 2;
    for (unsigned i = 0; i < 4; ++i) {
      const u32 pair = threads[t]->operands->a[i];
      a[row + i % 2 * 8][k + i / 2 * 8] = u16(pair), a[row + i % 2 * 8][k + i / 2 * 8 + 1] = u16(pair >> 16);
    }
  }
  for (unsigned row = 0; row < kRows; ++row) {
    for (unsigned k = 0; k < kDepth; ++k) a_value[row][k] = value_of_bfloat16(a[row][k]);
  }
  for (unsigned column = 0; column < first.columns; ++column) {
    for (unsigned k = 0; k < kDepth; ++k) b_value[column][k] = value_of_bfloat16(b[column][k]);
  }
  for (unsigned t = 0; t < kGroup; ++t) {
    state.self = threads[t], line = threads[t]->operands->line;
    const uint32_t number = group_number(*threads[t]);
    f32* d = threads[t]->operands->d;
    for (unsigned i = 0; i < first.columns / 2; ++i) {
      const unsigned row = t / 32 * 16 + t % 32 / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + t % 4 * 2 + i % 2;
      f32 sum = first.accumulates ? sum_before(d[i]) : f32(0);
      for (unsigned k = 0; k < kDepth; ++k) sum += a_value[row][k] * b_value[column][k];
      set_product(d[i], sum, number);
    }
    threads[t]->operands->done = true;
  }
}

// A register that was written in the meantime keeps what was written: which of the two a device leaves, nobody knows.
void settle_results(Thread& thread, unsigned covered) {
  std::erase_if(thread.results, [&](const Result& result) {
    if (result.group >= covered) return false;
    if (std::memcmp(result.place, &kUnsettled, sizeof kUnsettled) == 0) *result.place = result.value;
    else report({.kind = "unsettled"});
    return true;
  });
}

bool product_is_done(Thread& thread) { return thread.operands == nullptr || thread.operands->done; }

bool alike(const Operands& a, const Operands& b) {
  return a.line == b.line && a.columns == b.columns && a.b_descriptor == b.b_descriptor && a.accumulates == b.accumulates &&
         (a.a == nullptr) == (b.a == nullptr) && a.a_descriptor == b.a_descriptor;
}

}  // namespace

void multiply_warpgroup(unsigned columns, f32* d, const u32* a, uint64_t a_descriptor, uint64_t b_descriptor,
                        bool accumulates, bool a_transposed, bool b_transposed) {
  Thread& self = *state.self;
  const unsigned first = self.number / kGroup * kGroup;
  if (state.launch.block.x * state.launch.block.y * state.launch.block.z < first + kGroup) {
    report({.kind = "divergence", .detail = "incomplete warpgroup"});
    end_run(0);
  }
  Operands operands{columns, d, a, a_descriptor, b_descriptor, accumulates, a_transposed, b_transposed, line, false};
  self.operands = &operands;
  Thread* group[kGroup];
  bool all = true;
  for (unsigned t = 0; t < kGroup; ++t) {
    group[t] = state.threads[first + t].get();
    all = all && group[t]->operands != nullptr && !group[t]->operands->done && alike(operands, *group[t]->operands);
  }
  if (!self.products_fenced) report({.kind = "unordered"});
  self.products_fenced = true;  // said once
  if (all) {
    const int own = line;
    multiply_group(group);
    state.self = &self, line = own;
  } else {
    wait_until(product_is_done, 0, 0);
  }
  self.operands = nullptr;
}

void fence_products() { state.self->products_fenced = true; }

void commit_products() {
  Thread& self = *state.self;
  ++self.product_groups, self.open_product = 0;
}

void wait_products(uint32_t pending) {
  Thread& self = *state.self;
  const unsigned covered = self.product_groups - std::min(self.product_groups, pending);
  finish_reads(self.products, covered);
  settle_results(self, covered);
  std::erase_if(self.open_products, [&](const std::pair<unsigned, uint32_t>& entry) {
    if (entry.first >= covered) return false;
    settled[entry.second] = 1;
    self.products_fenced = false;
    return true;
  });
}

#ifdef KDSL_FIELD
void hold_result(f32* place, f32 value) { *place = value; }  // which says of itself that it is not settled
f32 result_of(f32* place) { return *place; }
f32 no_result() { return f32::of(kPoison); }

void check_settled(Datum tail) {
  const uint32_t number = tail & kPayload;
  if (number != 0 && !settled[number]) report({.kind = "unsettled"});
}

// Registers that go to memory.
void check_registers(const void* from, unsigned bytes) {
  for (unsigned i = 0; i < bytes / sizeof(Datum); ++i) {
    Datum datum;
    std::memcpy(&datum, static_cast<const char*>(from) + i * sizeof datum, sizeof datum);
    if (tag_of(datum) == kTail && (datum & kPayload) != 0) check_settled(datum);
  }
}
#else
void hold_result(f32* place, f32 value) {
  Thread& self = *state.self;
  *place = value;
  if (self.open_products.empty()) return;
  self.results.push_back({place, value, self.open_products.back().first});
  std::memcpy(place, &kUnsettled, sizeof kUnsettled);
}

f32 result_of(f32* place) {
  std::vector<Result>& results = state.self->results;
  const auto found = std::ranges::find(results, place, &Result::place);
  if (found == results.end()) return *place;
  const f32 value = found->value;
  *found = results.back();
  results.pop_back();
  return value;
}

f32 no_result() { return std::numeric_limits<f32>::quiet_NaN(); }

void check_registers(const void*, unsigned) {}
#endif

}  // namespace kdsl
