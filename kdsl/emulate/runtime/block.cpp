// A launch block by block, a block warp by warp: each lane of a warp runs until it waits; then the warp does what its
// lanes wait for. When no warp can go on, all threads have met at a barrier, or have ended, or never will.

#include <algorithm>
#include <climits>
#include <numeric>

#include "findings.h"
#include "state.h"

kdsl::Place threadIdx, blockIdx, blockDim, gridDim;

namespace kdsl {

State state;
int line = 0;

void give_way(Waits reason) {
  Thread& self = *state.self;
  self.waits = reason;
  self.line = line;
  Fiber::give_way();
}

void block_barrier() { give_way(Waits::block); }

void wait_until(bool (*ready)(Thread&), uint32_t first, uint32_t second) {
  Thread& self = *state.self;
  self.ready = ready, self.awaited[0] = first, self.awaited[1] = second;
  if (!ready(self)) give_way(Waits::condition);
}

uint32_t active_lanes() {
  Thread& self = *state.self;
  give_way(Waits::lanes);
  return self.out[0];
}

void collective(const char* operation, uint32_t lanes, bool aligned, void (*resolve)(Warp&, uint32_t)) {
  Thread& self = *state.self;
  if (aligned && self.warp->size < kLanes) {
    report({.kind = "divergence", .detail = "incomplete warp"});
    end_run(0);
  }
  // PTX ISA, shfl.sync and bar.warp.sync: undefined for a thread that its own mask leaves out.
  if (!(lanes >> self.lane & 1)) report({.kind = "left_out", .detail = operation, .offset = int64_t(lanes)});
  self.lanes = (lanes & self.warp->existing()) | 1u << self.lane;
  self.operation = operation, self.resolve = resolve;
  give_way(Waits::warp);
}

namespace {

void thread_body(void* thread) {
  state.launch.kernel->body(state.launch.arguments.data());
  static_cast<Thread*>(thread)->waits = Waits::ended;
  static_cast<Thread*>(thread)->line = line;
}

void run_thread(Thread& thread) {
  state.self = &thread;
  line = thread.line, threadIdx = thread.place;
  thread.fiber.resume();
  state.self = nullptr;
}

bool waits_with(const Thread& a, const Thread& b) {
  return b.waits == Waits::warp && a.operation == b.operation && a.line == b.line && a.lanes == b.lanes;
}

// Lanes that `lane` waits for and that are not with it.
uint32_t missing(const Warp& warp, const Thread& thread) {
  uint32_t absent = 0;
  for (unsigned lane = 0; lane < warp.size; ++lane) {
    if ((thread.lanes >> lane & 1) && !waits_with(thread, *warp.thread[lane])) absent |= 1u << lane;
  }
  return absent;
}

void release(Warp& warp, uint32_t lanes) {
  for (unsigned lane = 0; lane < warp.size; ++lane) {
    if (lanes >> lane & 1) warp.thread[lane]->waits = Waits::nothing;
  }
}

// Does what lanes of the warp wait for together. False if they wait for others.
bool settle(Warp& warp) {
  bool progress = false;
  for (unsigned lane = 0; lane < warp.size; ++lane) {
    Thread& thread = *warp.thread[lane];
    if (thread.waits != Waits::warp || missing(warp, thread) != 0) continue;
    if (thread.lanes == warp.existing()) count_wavefronts(warp);
    thread.resolve(warp, thread.lanes);
    state.self = nullptr;
    release(warp, thread.lanes);
    progress = true;
  }
  if (progress) return true;
  // Nobody else of the warp can come: those on one line are what is active there.
  for (unsigned lane = 0; lane < warp.size; ++lane) {
    if (warp.thread[lane]->waits != Waits::lanes) continue;
    uint32_t together = 0;
    for (unsigned other = lane; other < warp.size; ++other) {
      const Thread& thread = *warp.thread[other];
      if (thread.waits == Waits::lanes && thread.line == warp.thread[lane]->line) together |= 1u << other;
    }
    for (unsigned other = lane; other < warp.size; ++other) {
      if (together >> other & 1) warp.thread[other]->out[0] = together;
    }
    release(warp, together);
    return true;
  }
  return false;
}

bool can_run(Thread& thread) {
  return thread.waits == Waits::nothing || (thread.waits == Waits::condition && thread.ready(thread));
}

// Over fields the lanes run in any order; over numbers in their own, so that findings name the first.
unsigned first_lane(const Warp& warp) { return kScale > 1 ? unsigned(state.random()) % warp.size : 0; }

bool run_warp(Warp& warp) {
  bool ran = false;
  do {
    const unsigned first = first_lane(warp), step = first % 2 == 0 ? 1 : warp.size - 1;
    for (unsigned i = 0; i < warp.size; ++i) {
      Thread& thread = *warp.thread[(first + i * step) % warp.size];
      if (!can_run(thread)) continue;
      thread.waits = Waits::nothing;
      run_thread(thread);
      ran = true;
    }
  } while (settle(warp));
  return ran;
}

bool waits_for_condition() {
  return std::any_of(state.threads.begin(), state.threads.end(), [](const auto& t) { return t->waits == Waits::condition; });
}

// Until no warp can go on: each in turn, and copies that land between them. Only conditions, which other warps and
// copies fulfil, make a second turn worth it.
void run_warps(std::vector<unsigned>& order) {
  for (bool ran = true; ran; ran = ran && waits_for_condition()) {
    ran = false;
    std::shuffle(order.begin(), order.end(), state.random);
    for (unsigned number : order) {
      ran = run_warp(state.warps[number]) || ran;
      if (pending_copies() != 0 && state.random() % 4 == 0) ran = land_one() || ran;
    }
    if (!ran) ran = land_one();
  }
}

const char* place_of(const Thread& thread) {
  switch (thread.waits) {
    case Waits::block: return "__syncthreads";
    case Waits::ended: return "the end of the kernel";
    case Waits::warp: return thread.operation;
    case Waits::condition: return condition_of(thread);
    default: return "";
  }
}

// `thread` waits for `other`, which waits elsewhere: neither will ever go on.
void report_divergence(Thread& thread, const Thread& other) {
  state.self = &thread;
  line = thread.line;
  const std::string detail = std::string(place_of(thread)) + "|" + place_of(other);
  report({.kind = "divergence", .detail = detail.c_str(), .other_line = other.line, .other_thread = int(other.number)});
  end_run(0);
}

void check_meeting(const std::vector<Thread*>& threads) {
  for (Thread* thread : threads) {
    if (thread->waits != Waits::condition) continue;
    state.self = thread, line = thread->line;
    report({.kind = "stuck", .detail = condition_of(*thread)});
    end_run(0);
  }
  for (Thread* thread : threads) {
    if (thread->waits != Waits::warp) continue;
    const uint32_t absent = missing(*thread->warp, *thread);
    report_divergence(*thread, *thread->warp->thread[std::countr_zero(absent)]);
  }
  const auto waiting = std::find_if(threads.begin(), threads.end(), [](auto* t) { return t->waits == Waits::block; });
  if (waiting == threads.end()) return;
  for (const Thread* other : threads) {
    if (other->waits != Waits::block || other->line != (*waiting)->line) report_divergence(**waiting, *other);
  }
}

void run_block() {
  poison_shared();
  reset_async();
  state.block_begin = state.block_synchronised = ++state.clock;
  std::vector<Thread*> threads;
  for (Warp& warp : state.warps) {
    warp.synchronised = state.clock;
    threads.insert(threads.end(), warp.thread, warp.thread + warp.size);
  }
  for (Thread* thread : threads) {
    thread->waits = Waits::nothing, thread->line = 0, thread->groups = 0;
    thread->copies.clear();
    thread->knows = {}, thread->fenced = 0, thread->bulk_groups = thread->product_groups = 0;
    thread->bulk_reads.clear(), thread->products.clear();
    thread->open_product = 0, thread->open_products.clear(), thread->operands = nullptr;
  }
  std::vector<unsigned> order(state.warps.size());
  std::iota(order.begin(), order.end(), 0u);
  for (;;) {
    run_warps(order);
    check_meeting(threads);
    for (Warp& warp : state.warps) count_wavefronts(warp);
    if (threads.front()->waits == Waits::ended) {
      for (Thread* thread : threads) {
        state.self = thread, line = thread->line;
        finish_reads(thread->bulk_reads, UINT_MAX);
      }
      return;
    }
    state.block_synchronised = ++state.clock;
    learn_from_block();
    for (Thread* thread : threads) thread->waits = Waits::nothing;
  }
}

void arrange_threads() {
  const Place shape = state.launch.block;
  const unsigned count = shape.x * shape.y * shape.z;
  while (state.threads.size() < count) {
    state.threads.push_back(std::make_unique<Thread>());
    Thread& thread = *state.threads.back();
    thread.fiber.create(thread_body, &thread);
  }
  state.warps.assign((count + kLanes - 1) / kLanes, Warp{});
  for (unsigned number = 0; number < count; ++number) {
    Thread& thread = *state.threads[number];
    Warp& warp = state.warps[number / kLanes];
    thread.number = number, thread.lane = number % kLanes, thread.warp = &warp;
    thread.place = {number % shape.x, number / shape.x % shape.y, number / (shape.x * shape.y)};
    warp.number = number / kLanes, warp.thread[warp.size++] = &thread;
  }
}

}  // namespace

void run_launch() {
  Launch& launch = state.launch;
  launch.begin = ++state.clock;
  gridDim = launch.grid, blockDim = launch.block;
  arrange_threads();
  std::vector<uint64_t> order(uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z);
  std::iota(order.begin(), order.end(), uint64_t(0));
  std::shuffle(order.begin(), order.end(), state.random);
  for (uint64_t number : order) {
    const uint64_t plane = uint64_t(launch.grid.x) * launch.grid.y;
    blockIdx = {unsigned(number % launch.grid.x), unsigned(number / launch.grid.x % launch.grid.y),
                unsigned(number / plane)};
    run_block();
  }
}

}  // namespace kdsl
