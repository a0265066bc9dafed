#include "fibers.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

namespace kdsl {
namespace {

constexpr size_t kStackBytes = 256 << 10;
jmp_buf scheduler;
ucontext_t scheduler_start;
Fiber* running = nullptr;

// A stack whose lowest page faults, so that running out of it is seen.
char* make_stack() {
  const size_t page = size_t(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, kStackBytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("stack of a thread");
    std::exit(3);
  }
  mprotect(memory, page, PROT_NONE);
  return static_cast<char*>(memory) + page;
}

}  // namespace

void Fiber::create(void (*body)(void*), void* argument) {
  body_ = body, argument_ = argument, stack_ = make_stack();
}

// makecontext passes ints, so the address comes in two of them.
void Fiber::start(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Fiber*>(uintptr_t(high) << 32 | low);
  for (;;) {
    self->body_(self->argument_);
    give_way();
  }
}

// The first time a context is made the slow way; after that `_longjmp`, which leaves the signal mask alone, switches
// in some nanoseconds.
[[gnu::noinline]] void Fiber::resume() {
  running = this;
  if (_setjmp(scheduler) != 0) return;
  if (started_) _longjmp(context_, 1);
  started_ = true;
  getcontext(&first_);
  first_.uc_stack.ss_sp = stack_;
  first_.uc_stack.ss_size = kStackBytes;
  first_.uc_link = nullptr;
  const auto address = reinterpret_cast<uintptr_t>(this);
  makecontext(&first_, reinterpret_cast<void (*)()>(&Fiber::start), 2, unsigned(address >> 32), unsigned(address));
  swapcontext(&scheduler_start, &first_);
}

[[gnu::noinline]] void Fiber::give_way() {
  if (_setjmp(running->context_) == 0) _longjmp(scheduler, 1);
}

}  // namespace kdsl
