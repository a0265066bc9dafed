// The runner: `runner MEMORY < JOB`. MEMORY is a file with all buffers one after the other; what kernels write is
// written there. JOB has one command a line (see `perform`); findings and counts go to standard output.

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <iostream>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "findings.h"
#include "state.h"

namespace kdsl {
namespace {

constexpr size_t kSharedWindow = (256 << 10) * kScale;
char* memory = nullptr;

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(2);
}

void map_memory(const char* path) {
  const int file = open(path, O_RDWR);
  struct stat about{};
  if (file < 0 || fstat(file, &about) != 0) fail(std::string(path) + " cannot be opened");
  void* mapped = mmap(nullptr, size_t(about.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) fail(std::string(path) + " cannot be mapped");
  memory = static_cast<char*>(mapped);
}

Cell* make_cells(size_t bytes, unsigned shift) {
  return static_cast<Cell*>(std::calloc((bytes >> shift) + 1, sizeof(Cell)));
}

void make_shared() {
  state.shared = static_cast<char*>(std::aligned_alloc(1024, kSharedWindow));
  state.window = {state.shared, 0, Role::shared, kShared, kSharedShift, make_cells(kSharedWindow, kSharedShift)};
}

// What a kernel has not written yet is 0xff bytes: NaN in every float type.
void add_buffer(std::istream& words) {
  std::string role;
  unsigned shift = 0;
  size_t offset = 0, bytes = 0;
  words >> role >> shift >> offset >> bytes;
  const Role kind = role == "input" ? Role::input : role == "output" ? Role::output
                    : role == "updated" ? Role::updated : Role::workspace;
  Region region{memory + offset, bytes, kind, int(state.buffers.size()), shift};
  if (kind != Role::input) region.cells = make_cells(bytes, shift);
  if (kind == Role::output || kind == Role::workspace) std::memset(region.base, 0xff, bytes);
  state.buffers.push_back(region);
}

size_t aligned(size_t offset, size_t alignment) { return (offset + alignment - 1) / alignment * alignment; }

// Static arrays in the order of the text, then the dynamic one.
void lay_out_shared(const Kernel& kernel, size_t dynamic_bytes) {
  state.shared_arrays.clear();
  size_t end = 0;
  auto place = [&](size_t bytes, size_t alignment) {
    const size_t begin = aligned(end, alignment);
    end = begin + bytes;
    if (end > kSharedWindow) fail("more shared memory than any device has");
    Cell* cells = state.window.cells + (begin >> kSharedShift);
    state.shared_arrays.push_back({state.shared + begin, bytes, Role::shared, kShared, kSharedShift, cells});
  };
  for (unsigned i = 0; i < kernel.static_array_count; ++i) {
    place(kernel.static_arrays[i].bytes, std::max<size_t>(kernel.static_arrays[i].alignment, 16 * kScale));
  }
  place(dynamic_bytes * kScale, std::max(kernel.dynamic_alignment, 16u) * kScale);
  state.shared_bytes = state.window.bytes = end;
}

void start_launch(std::istream& words) {
  Launch& launch = state.launch;
  std::string library, symbol, argument;
  words >> library >> symbol >> launch.grid.x >> launch.grid.y >> launch.grid.z;
  words >> launch.block.x >> launch.block.y >> launch.block.z >> launch.dynamic_bytes;
  launch.arguments.clear();
  while (words >> argument) {  // `b` and a buffer's number, or `v` and the bits of a value
    const uint64_t number = std::stoull(argument.substr(1), nullptr, 16);
    const bool buffer = argument[0] == 'b';
    launch.arguments.push_back({buffer ? &state.buffers.at(number) : nullptr, buffer ? 0 : number});
  }
  void* opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) fail(dlerror());
  launch.kernel = static_cast<const Kernel*>(dlsym(opened, ("kdsl_kernel_" + symbol).c_str()));
  if (launch.kernel == nullptr) fail("no kernel " + symbol);
  lay_out_shared(*launch.kernel, launch.dynamic_bytes);
  std::printf("static kernel=%d bytes=%zu\n", launch.number, state.shared_bytes / kScale - launch.dynamic_bytes);
  run_launch();
  ++launch.number;
}

void find_unwritten() {
  for (const Region& region : state.buffers) {
    if (region.role != Role::output) continue;
    const size_t cells = region.bytes >> region.granule_shift;
    size_t first = cells, count = 0;
    for (size_t i = 0; i < cells; ++i) {
      if (region.cells[i].written.time != 0) continue;
      first = std::min(first, i), ++count;
    }
    if (count == 0) continue;
    report_host({.kind = "unwritten", .array = region.number, .offset = int64_t(first << region.granule_shift),
                 .bytes = int64_t(count << region.granule_shift)});
  }
}

void perform(const std::string& text) {
  std::istringstream words(text);
  std::string command;
  words >> command;
  if (command == "seed") {
    unsigned seed = 0;
    words >> seed;
    state.random.seed(seed);
  } else if (command == "seconds") {
    double seconds = 0;
    words >> seconds;
    itimerval limit{};
    limit.it_value.tv_sec = time_t(seconds);
    limit.it_value.tv_usec = suseconds_t((seconds - double(limit.it_value.tv_sec)) * 1e6);
    setitimer(ITIMER_REAL, &limit, nullptr);
  } else if (command == "buffer") {
    add_buffer(words);
#ifdef KDSL_FIELD
  } else if (command == "field") {
    set_field(words);
#endif
  } else if (command == "launch") {
    start_launch(words);
  } else if (command == "end") {
    --state.launch.number;
    find_unwritten();
    end_run(0);
  } else {
    fail("unknown command " + command);
  }
}

// A fault of a kernel, or the end of its time: what is known of it, and out.
void on_signal(int number) {
  const char* kind = number == SIGALRM ? "hang" : "crash";
  char text[256];
  const int length = std::snprintf(text, sizeof text,
      "finding kernel=%d kind=%s line=%d block=%u,%u,%u thread=%d other_line=-1 other_thread=-1 array=-1 offset=-1 "
      "bytes=-1 detail=%s\nend\n", state.launch.number, kind, line, blockIdx.x, blockIdx.y, blockIdx.z,
      state.self ? int(state.self->number) : -1, number == SIGFPE ? "arithmetic" : "");
  if (write(STDOUT_FILENO, text, size_t(length)) < 0) _exit(3);
  _exit(0);
}

void catch_signals() {
  static char stack[64 << 10];
  const stack_t alternative{.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof stack};
  sigaltstack(&alternative, nullptr);
  for (int number : {SIGALRM, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    struct sigaction action{};
    action.sa_handler = on_signal;
    action.sa_flags = SA_ONSTACK;
    sigaction(number, &action, nullptr);
  }
}

}  // namespace
}  // namespace kdsl

int main(int count, char** arguments) {
  if (count != 2) return 2;
  kdsl::map_memory(arguments[1]);
  kdsl::make_shared();
  kdsl::catch_signals();
  kdsl::state.buffers.reserve(4096);  // regions keep their address
  std::string text;
  while (std::getline(std::cin, text)) kdsl::perform(text);
  return 2;
}
