// mbarriers, bulk copies and barriers of some threads: who waits for what, and what waiting lets a thread know.
//
// A bulk copy lands at a moment that the seed chooses, at the latest when nothing else can go on. Until a thread has
// waited for the phase in which it arrived, what it wrote is nobody's.

#include <algorithm>
#include <climits>
#include <cstring>
#include <map>

#include "findings.h"
#include "state.h"

namespace kdsl {

void Knowledge::join(const Knowledge& other) {
  if (before.size() < other.before.size()) before.resize(other.before.size());
  for (size_t i = 0; i < other.before.size(); ++i) before[i] = std::max(before[i], other.before[i]);
  if (arrivals.size() < other.arrivals.size()) arrivals.resize(other.arrivals.size());
  for (size_t i = 0; i < other.arrivals.size(); ++i) arrivals[i] = arrivals[i] || other.arrivals[i];
}

namespace {

struct Gathering {  // of arrivals, phase by phase
  uint32_t expected = 0, phase = 0, arrival = 0;
  int64_t arrivals = 0, bytes = 0;  // still to come
  Knowledge gathered, last;
};
struct Bulk {
  Copy copy;
  uint32_t barrier;
  unsigned thread;
};

std::map<uint32_t, Gathering> barriers;  // by shared address
Gathering named[16];
std::vector<Bulk> bulk;
uint32_t last_arrival = 0;

void know(Knowledge& knowledge, uint32_t arrival) {
  if (knowledge.arrivals.size() <= arrival) knowledge.arrivals.resize(arrival + 1);
  knowledge.arrivals[arrival] = true;
}

void begin_phase(Gathering& barrier) {
  barrier.arrivals = barrier.expected, barrier.bytes = 0;
  barrier.arrival = ++last_arrival;
  barrier.gathered = {};
}

void end_phase_if_complete(Gathering& barrier) {
  if (barrier.arrivals != 0 || barrier.bytes != 0) return;
  barrier.last = std::move(barrier.gathered);
  know(barrier.last, barrier.arrival);
  ++barrier.phase;
  begin_phase(barrier);
}

// What the running thread did so far is known to whoever waits for the phase.
void release_to(Gathering& barrier) {
  barrier.gathered.join(knowledge_of(*state.self));
  ++state.clock;
}

constexpr unsigned kBarrierBytes = 8 * kScale;

// A use of the barrier reads it: it must have been initialised, with a barrier of threads since.
Gathering& barrier_at(uint32_t address, const char* what) {
  check_read(state.window, generic_address(address), kBarrierBytes, kBarrierBytes);
  const auto found = barriers.find(address);
  if (found == barriers.end()) {
    report({.kind = "no_barrier", .detail = what, .array = kShared, .offset = int64_t(address) * kScale});
    end_run(0);
  }
  return found->second;
}

bool phase_is_over(Thread& thread) {
  const Gathering& barrier = barriers.at(thread.awaited[0]);
  return (barrier.phase & 1) != thread.awaited[1];
}
bool named_is_over(Thread& thread) { return named[thread.awaited[0]].phase != thread.awaited[1]; }

void arrive_at_named(unsigned number, unsigned threads) {
  if (number >= 16 || threads == 0 || threads % kLanes != 0) outside_emulation("a barrier of threads that are no whole warps");
  Gathering& barrier = named[number];
  if (barrier.expected == 0) barrier.expected = threads, begin_phase(barrier);
  if (barrier.expected != threads) {
    report({.kind = "arrivals", .detail = "a barrier is asked for with two counts of threads"});
    end_run(0);
  }
  release_to(barrier);
  if (--barrier.arrivals == 0) {
    barrier.expected = 0;
    barrier.last = std::move(barrier.gathered);
    ++barrier.phase;
  }
}

}  // namespace

Knowledge knowledge_of(const Thread& thread) {
  Knowledge found = thread.knows;
  found.before.resize(state.threads.size());
  for (uint32_t& time : found.before) time = std::max(time, state.block_synchronised);
  for (unsigned lane = 0; lane < thread.warp->size; ++lane) {
    uint32_t& time = found.before[thread.warp->thread[lane]->number];
    time = std::max(time, thread.warp->synchronised);
  }
  found.before[thread.number] = state.clock + 1;
  return found;
}

void reset_async() {
  barriers.clear(), bulk.clear(), state.warp_reads.clear(), state.engine_reads.clear();
  for (Gathering& barrier : named) barrier = {};
  last_arrival = 0;
}

uint32_t pending_copies() { return uint32_t(bulk.size()); }

bool land_one() {
  if (bulk.empty()) return false;
  const size_t number = state.random() % bulk.size();
  const Bulk landed = bulk[number];
  bulk.erase(bulk.begin() + long(number));
  Gathering& barrier = barriers.at(landed.barrier);
  std::memcpy(reinterpret_cast<void*>(generic_address(landed.copy.to)), reinterpret_cast<const void*>(landed.copy.from),
              landed.copy.bytes);
  stamp_write(state.window, generic_address(landed.copy.to), landed.copy.bytes,
              {barrier.arrival, kEngine, uint32_t(landed.copy.line)});
  barrier.bytes -= landed.copy.bytes / kScale;
  end_phase_if_complete(barrier);
  return true;
}

void learn_from_block() {
  if (barriers.empty() && last_arrival == 0) return;
  Knowledge all;
  for (const auto& warp : state.warps) {
    for (unsigned lane = 0; lane < warp.size; ++lane) all.join(warp.thread[lane]->knows);
  }
  for (const auto& warp : state.warps) {
    for (unsigned lane = 0; lane < warp.size; ++lane) warp.thread[lane]->knows = all;
  }
}

void learn_from_warp(Warp& warp, uint32_t lanes) {
  if (last_arrival == 0) return;
  Knowledge all;
  for (unsigned lane = 0; lane < warp.size; ++lane) {
    if (lanes >> lane & 1) all.join(warp.thread[lane]->knows);
  }
  for (unsigned lane = 0; lane < warp.size; ++lane) {
    if (lanes >> lane & 1) warp.thread[lane]->knows = all;
  }
}

const char* condition_of(const Thread& thread) {
  static char text[160];
  if (thread.ready == phase_is_over) {
    const Gathering& barrier = barriers.at(thread.awaited[0]);
    std::snprintf(text, sizeof text, "phase %u of the mbarrier at byte %u: %lld arrivals and %lld bytes are missing",
                  barrier.phase, thread.awaited[0], (long long)barrier.arrivals, (long long)barrier.bytes);
  } else if (thread.ready == named_is_over) {
    std::snprintf(text, sizeof text, "barrier %u: %lld threads are missing", thread.awaited[0],
                  (long long)named[thread.awaited[0]].arrivals);
  } else {
    std::snprintf(text, sizeof text, "the other threads of its warpgroup");
  }
  return text;
}

void mbarrier_init(uint32_t address, uint32_t count) {
  const uintptr_t place = generic_address(address);
  if (!check_write(state.window, place, kBarrierBytes, kBarrierBytes, {reinterpret_cast<void*>(place), nullptr})) return;
  stamp_write(state.window, place, kBarrierBytes, {state.clock, state.self->number, uint32_t(line)});
  std::memset(reinterpret_cast<void*>(place), 0, kBarrierBytes);
  if (state.warp_reads.empty()) {
    state.warp_reads.resize(((state.shared_bytes >> kSharedShift) + 1) * state.warps.size());
  }
  Gathering& barrier = barriers[address];
  barrier = {};
  barrier.expected = count;
  begin_phase(barrier);
}

void mbarrier_expect(uint32_t address, uint32_t bytes) { barrier_at(address, "expect_tx").bytes += bytes; }

void mbarrier_arrive(uint32_t address, uint32_t count) {
  Gathering& barrier = barrier_at(address, "arrive");
  if (int64_t(count) > barrier.arrivals) {
    report({.kind = "arrivals", .detail = "more arrivals at an mbarrier than its phase expects", .array = kShared,
            .offset = int64_t(address) * kScale});
    end_run(0);
  }
  release_to(barrier);
  barrier.arrivals -= count;
  end_phase_if_complete(barrier);
}

void mbarrier_wait(uint32_t address, uint32_t parity) {
  barrier_at(address, "wait");
  wait_until(phase_is_over, address, parity & 1);
  state.self->knows.join(barriers.at(address).last);
}

void copy_bulk(uint32_t to, const Region* region, uintptr_t from, uint32_t bytes, uint32_t barrier) {
  if (region == nullptr) outside_emulation("cp.async.bulk from the thread's own memory");
  if (bytes == 0 || bytes % 16 != 0) outside_emulation("cp.async.bulk of bytes that are no multiple of 16");
  barrier_at(barrier, "cp.async.bulk");
  constexpr unsigned alignment = 16 * kScale;
  const unsigned size = bytes * kScale;
  const uintptr_t target = generic_address(to);
  if (!check_read(*region, from, size, alignment)) return;
  const Copy copy{to, region, from, size, size, 0, line, false};
  if (!check_write(state.window, target, size, alignment, {nullptr, &copy})) return;
  poison_before_copy(target, size);
  stamp_write(state.window, target, size, {kInFlight, state.self->number, uint32_t(line)});
  bulk.push_back({copy, barrier, state.self->number});
}

// --- reads of shared memory by the copy engine and the tensor cores ----------------------------------------------

bool fenced_for_engine(const Stamp& written, const Thread& reader) {
  if (written.time == 0 || written.time == kInFlight || written.thread == kEngine) return true;
  return written.time < state.threads[written.thread]->fenced || written.time < reader.fenced;
}

void proxy_fence() { state.self->fenced = ++state.clock; }

bool read_by_engine(uint32_t address, unsigned bytes) {
  const uintptr_t place = generic_address(address);
  if (!check_read(state.window, place, bytes, 16 * kScale)) return false;
  const size_t first = (place - base_of(&state.window)) >> kSharedShift;
  for (size_t cell = first; cell < first + (bytes >> kSharedShift); ++cell) {
    const Stamp& written = state.window.cells[cell].written;
    if (fenced_for_engine(written, *state.self)) continue;
    report({.kind = "unfenced", .other_line = int(written.line), .other_thread = int(written.thread), .array = kShared,
            .offset = int64_t(cell << kSharedShift)});
    break;
  }
  return true;
}

void store_bulk(const Region* region, uintptr_t to, uint32_t from, uint32_t bytes) {
  if (region == nullptr || bytes == 0 || bytes % 16 != 0) outside_emulation("cp.async.bulk of bytes that are no multiple of 16");
  Thread& self = *state.self;
  if (!read_by_engine(from, bytes * kScale)) return;
  begin_read(self.bulk_reads, {from, bytes * kScale, self.bulk_groups, region, to, false});
  if (state.random() & 1) {
    self.bulk_reads.back().done = true;
    const uintptr_t place = generic_address(from);
    store(region, to, reinterpret_cast<const void*>(place), bytes * kScale, 16 * kScale);
  }
}

void count_reads(const AsyncRead& read, int change) {
  const size_t first = size_t(read.from) * kScale >> kSharedShift;
  for (size_t cell = first; cell < first + (read.bytes >> kSharedShift); ++cell) {
    state.engine_reads[cell] = uint16_t(state.engine_reads[cell] + change);
  }
}

// From here to the wait nobody may write there.
void begin_read(std::vector<AsyncRead>& reads, const AsyncRead& read) {
  if (state.engine_reads.empty()) state.engine_reads.resize((state.shared_bytes >> kSharedShift) + 1);
  count_reads(read, 1);
  reads.push_back(read);
}

// Reads of groups before `covered` are over now at the latest: nobody may have written there since.
void finish_reads(std::vector<AsyncRead>& reads, unsigned covered) {
  auto finished = [&](const AsyncRead& read) {
    if (read.group >= covered) return false;
    count_reads(read, -1);
    const uintptr_t place = generic_address(read.from);
    check_read(state.window, place, read.bytes, 16 * kScale);
    if (read.region != nullptr && !read.done) {
      store(read.region, read.to, reinterpret_cast<const void*>(place), read.bytes, 16 * kScale);
    }
    return true;
  };
  std::erase_if(reads, finished);
}

void commit_bulk() { ++state.self->bulk_groups; }
void wait_bulk(uint32_t pending) {
  Thread& self = *state.self;
  finish_reads(self.bulk_reads, self.bulk_groups - std::min(self.bulk_groups, pending));
}

// --- barriers of some threads ------------------------------------------------------------------------------------

void barrier_sync(uint32_t number, uint32_t threads) {
  Thread& self = *state.self;
  const uint32_t phase = number < 16 ? named[number].phase : 0;
  arrive_at_named(number, threads);
  wait_until(named_is_over, number, phase);
  self.knows.join(named[number].last);
}
void barrier_arrive(uint32_t number, uint32_t threads) { arrive_at_named(number, threads); }

}  // namespace kdsl
