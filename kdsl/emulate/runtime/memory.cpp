// Checked memory: bounds, alignment, uninitialised reads, writes to inputs, and races between threads.

#include <algorithm>
#include <cstring>

#include "findings.h"
#include "state.h"

namespace kdsl {
namespace {

Stamp now() { return {state.clock, state.self->number, uint32_t(line)}; }

// Whether `earlier` was of another thread with no barrier since: the device may do the two in either order.
bool unordered(const Stamp& earlier) {
  if (earlier.thread == kEngine) return !state.self->knows.has(earlier.time);
  if (earlier.time < state.launch.begin) return false;
  if (earlier.time < state.block_begin) return true;  // another block of this launch
  const Thread& self = *state.self;
  if (earlier.thread == self.number || earlier.time < state.block_synchronised) return false;
  if (earlier.thread < self.knows.before.size() && earlier.time < self.knows.before[earlier.thread]) return false;
  return !(earlier.thread / kLanes == self.warp->number && earlier.time < self.warp->synchronised);
}

void report_cell(const char* kind, const char* detail, const Region& region, size_t cell, const Stamp* other) {
  Finding finding{.kind = kind, .detail = detail, .array = region.number};
  finding.offset = int64_t(cell << region.granule_shift);
  if (region.role == Role::shared) finding.offset += region.base - state.shared;
  if (other != nullptr) {
    const bool elsewhere = other->thread != kEngine && other->time < state.block_begin;
    finding.other_line = int(other->line), finding.other_thread = elsewhere ? -2 : int(other->thread);
    if (other->thread == kEngine) finding.other_thread = -1;
  }
  report(finding);
}

void note_reader(Cell& cell, const Stamp& reader) {
  if (cell.first_read.time < state.launch.begin || cell.first_read.time == 0) cell.first_read = reader;
  if (cell.read.thread != reader.thread || cell.read.time == 0) {
    if (cell.read.thread / kLanes == reader.thread / kLanes) {
      cell.read_beside = cell.read;
    } else {
      const Stamp other = cell.read_elsewhere;
      const bool beside = other.thread / kLanes == reader.thread / kLanes && other.thread != reader.thread;
      cell.read_elsewhere = cell.read;
      cell.read_beside = beside ? other : Stamp{};
    }
  }
  cell.read = reader;
}

// The last reads of a cell by each warp, which mbarriers may order one by one. Null where they are not kept.
Stamp* reads_by_warp(const Region& region, size_t index) {
  if (state.warp_reads.empty() || region.role != Role::shared) return nullptr;
  return &state.warp_reads[size_t(&region.cells[index] - state.window.cells) * state.warps.size()];
}

// True for the first cell at which something is wrong, which is enough for one access.
bool flaw_of_read(const Region& region, size_t index) {
  const Cell& cell = region.cells[index];
  if (cell.written.time == kInFlight || (cell.written.thread == kEngine && unordered(cell.written))) {
    report_cell("unawaited", "read", region, index, &cell.written);
  } else if (cell.written.time == 0 && region.role != Role::updated) {
    report_cell("uninitialised", "", region, index, nullptr);
  } else if (unordered(cell.written)) {
    report_cell("race", "read-after-write", region, index, &cell.written);
  } else {
    return false;
  }
  return true;
}

// Two threads write the same bytes: whichever comes last, they are the same.
bool same_bytes(const Region& region, uintptr_t address, unsigned bytes, const Cell& cell, const Written& what) {
  if (cell.written.time != kInFlight) {
    const auto* there = reinterpret_cast<const char*>(address);
    if (what.bytes != nullptr) return std::memcmp(there, what.bytes, bytes) == 0;
    const Copy& copy = *what.copy;
    return copy.read == bytes && std::memcmp(there, reinterpret_cast<const void*>(copy.from), bytes) == 0;
  }
  if (what.copy == nullptr || cell.written.thread == state.self->number || region.role != Role::shared) return false;
  const Copy* other = copy_in_flight(*state.threads[cell.written.thread], what.copy->to);
  return other != nullptr && other->to == what.copy->to && other->from == what.copy->from &&
         other->bytes == what.copy->bytes && other->read == what.copy->read;
}

bool flaw_of_write(const Region& region, uintptr_t address, unsigned bytes, size_t index, const Written& what) {
  const Cell& cell = region.cells[index];
  const bool in_flight = cell.written.time == kInFlight || cell.written.thread == kEngine;
  if (cell.written.time == kInFlight || unordered(cell.written)) {
    const bool same = same_bytes(region, address, bytes, cell, what);
    const char* kind = same ? "redundant" : in_flight ? "unawaited" : "race";
    report_cell(kind, same || in_flight ? "write" : "write-after-write", region, index, &cell.written);
    if (!same) return true;
  }
  for (const Stamp* reader : {&cell.first_read, &cell.read, &cell.read_beside, &cell.read_elsewhere}) {
    if (reader->time != 0 && unordered(*reader)) {
      report_cell("race", "write-after-read", region, index, reader);
      return true;
    }
  }
  if (!state.engine_reads.empty() && region.role == Role::shared &&
      state.engine_reads[size_t(&cell - state.window.cells)] != 0) {
    report_cell("overwritten", "", region, index, nullptr);
    return true;
  }
  const Stamp* of_warp = reads_by_warp(region, index);
  for (size_t warp = 0; of_warp != nullptr && warp < state.warps.size(); ++warp) {
    if (of_warp[warp].time != 0 && unordered(of_warp[warp])) {
      report_cell("race", "write-after-read", region, index, &of_warp[warp]);
      return true;
    }
  }
  return false;
}

bool reachable(const Region& region, uintptr_t address, unsigned bytes, unsigned alignment, const char* access) {
  const int64_t offset = int64_t(address - reinterpret_cast<uintptr_t>(region.base));
  const int64_t base = region.role == Role::shared ? region.base - state.shared : 0;
  if (offset < 0 || uint64_t(offset) + bytes > region.bytes) {
    report({.kind = "out_of_bounds", .detail = access, .array = region.number, .offset = offset + base, .bytes = bytes});
    return false;
  }
  if (address % alignment != 0) {
    report({.kind = "misaligned", .detail = access, .array = region.number, .offset = offset + base, .bytes = bytes});
    return false;
  }
  return true;
}

struct Span { size_t first, last; };
Span cells_of(const Region& region, uintptr_t address, unsigned bytes) {
  const size_t offset = address - reinterpret_cast<uintptr_t>(region.base);
  return {offset >> region.granule_shift, (offset + bytes - 1) >> region.granule_shift};
}

}  // namespace

bool check_read(const Region& region, uintptr_t address, unsigned bytes, unsigned alignment) {
  if (!reachable(region, address, bytes, alignment, "read")) return false;
  if (region.cells == nullptr) return true;
  const auto [first, last] = cells_of(region, address, bytes);
  const Stamp reader = now();
  bool flawed = false;
  for (size_t i = first; i <= last; ++i) {
    flawed = flawed || flaw_of_read(region, i);
    note_reader(region.cells[i], reader);
    if (Stamp* of_warp = reads_by_warp(region, i)) of_warp[state.self->warp->number] = reader;
  }
  return true;
}

bool check_write(const Region& region, uintptr_t address, unsigned bytes, unsigned alignment, const Written& what) {
  if (!reachable(region, address, bytes, alignment, "write")) return false;
  if (region.role == Role::input) {
    const int64_t offset = int64_t(address - reinterpret_cast<uintptr_t>(region.base));
    report({.kind = "changed_input", .array = region.number, .offset = offset, .bytes = bytes});
    return false;
  }
  const auto [first, last] = cells_of(region, address, bytes);
  for (size_t i = first; i <= last; ++i) {
    if (flaw_of_write(region, address, bytes, i, what)) break;
  }
  return true;
}

void stamp_write(const Region& region, uintptr_t address, unsigned bytes, Stamp stamp) {
  const auto [first, last] = cells_of(region, address, bytes);
  for (size_t i = first; i <= last; ++i) region.cells[i].written = stamp;
}

void load(const Region* region, uintptr_t address, void* to, unsigned bytes, unsigned alignment) {
  if (check_read(*region, address, bytes, alignment)) {
    if (region->role == Role::shared) note_shared(shared_address(address), bytes, kLoad);
    std::memcpy(to, reinterpret_cast<const void*>(address), bytes);
  } else {
    std::memset(to, 0xff, bytes);
  }
}

void store(const Region* region, uintptr_t address, const void* from, unsigned bytes, unsigned alignment) {
  if (!check_write(*region, address, bytes, alignment, {from, nullptr})) return;
  check_registers(from, bytes);
  if (region->role == Role::shared) note_shared(shared_address(address), bytes, kStore);
  stamp_write(*region, address, bytes, now());
  std::memcpy(reinterpret_cast<void*>(address), from, bytes);
}

void outside_registers(long index, long elements) {
  report({.kind = "out_of_bounds", .detail = "registers", .array = kRegisters, .offset = index, .bytes = elements});
}

void poison_shared() {
  std::memset(state.shared, 0xff, state.shared_bytes);
  std::fill_n(state.window.cells, (state.shared_bytes >> kSharedShift) + 1, Cell{});
}

// --- addresses ----------------------------------------------------------------------------------------------------

uint32_t shared_address(uintptr_t address) {
  return uint32_t((address - reinterpret_cast<uintptr_t>(state.shared)) / kScale);
}
uintptr_t generic_address(uint32_t shared) { return reinterpret_cast<uintptr_t>(state.shared) + uintptr_t(shared) * kScale; }
const Region* shared_region(uint32_t) { return &state.window; }
const Region* static_array(unsigned number) { return &state.shared_arrays[number]; }
const Region* dynamic_array() { return &state.shared_arrays.back(); }
uintptr_t base_of(const Region* region) { return reinterpret_cast<uintptr_t>(region->base); }

const Region* region_of(uintptr_t address) {
  auto holds = [address](const Region& r) { return address - base_of(&r) < r.bytes; };
  if (holds(state.window)) return &state.window;
  for (const Region& buffer : state.buffers) {
    if (holds(buffer)) return &buffer;
  }
  report({.kind = "out_of_bounds", .detail = "address", .array = kUnknown});
  outside_emulation("an address that was made from a number");
  return nullptr;
}

}  // namespace kdsl
