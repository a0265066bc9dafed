#include "findings.h"

#include <cstdio>
#include <map>
#include <tuple>
#include <unistd.h>

#include "state.h"

namespace kdsl {
namespace {

constexpr size_t kMostFindings = 100;  // different ones; a broken kernel has no end of them
struct Seen { int number; uint64_t times; };
std::map<std::tuple<int, std::string, std::string, int, int, int>, Seen> seen;

// As bytes of the device, where it is a place in memory.
long long in_bytes(const Finding& finding, int64_t number) {
  const bool memory = finding.array >= 0 || finding.array == kShared;
  return memory && number > 0 ? (long long)number / kScale : (long long)number;
}

void print(const Finding& finding, int thread) {
  std::printf("finding kernel=%d kind=%s line=%d block=%u,%u,%u thread=%d other_line=%d other_thread=%d array=%d "
              "offset=%lld bytes=%lld detail=%s\n",
              state.launch.number, finding.kind, line, blockIdx.x, blockIdx.y, blockIdx.z, thread, finding.other_line,
              finding.other_thread, finding.array, in_bytes(finding, finding.offset), in_bytes(finding, finding.bytes),
              finding.detail);
  std::fflush(stdout);
}

}  // namespace

void report(const Finding& finding) {
  const std::tuple key{state.launch.number, std::string(finding.kind), std::string(finding.detail), line,
                       finding.other_line, finding.array};
  const auto found = seen.find(key);
  if (found != seen.end()) {
    ++found->second.times;
  } else if (seen.size() < kMostFindings) {
    seen.emplace(key, Seen{int(seen.size()), 1});
    print(finding, state.self ? int(state.self->number) : -1);
  }
}

void report_host(const Finding& finding) {
  line = -1;
  state.self = nullptr;
  report(finding);
}

void print_repetitions() {
  for (const auto& [key, entry] : seen) {
    std::printf("times finding=%d count=%llu\n", entry.number, (unsigned long long)entry.times);
  }
}

void end_run(int status) {
  print_repetitions();
  print_wavefronts();
#ifdef KDSL_FIELD
  print_field();
#endif
  std::puts("end");
  std::fflush(stdout);
  _exit(status);
}

void outside_emulation(const char* what) {
  std::printf("refusal kernel=%d line=%d what=%s\n", state.launch.number, line, what);
  end_run(0);
}

}  // namespace kdsl
