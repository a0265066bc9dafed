// Shared-memory wavefronts, counted for each instruction of a warp: 32 banks of 4 bytes, requests of at most 128 bytes
// in phases of 32, 16 or 8 lanes, lanes on one word served together. The ideal is what the words touched would need if
// they were spread over all banks.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <map>
#include <tuple>

#include "state.h"

namespace kdsl {
namespace {

struct Traffic { uint64_t instructions = 0, wavefronts = 0, ideal = 0; unsigned worst = 0, worst_ideal = 0; };
std::map<std::tuple<int, int, uint8_t, uint16_t>, Traffic> traffic;  // launch, line, kind, bytes of a lane
const char* const kKindName[] = {"load", "store", "ldmatrix", "stmatrix", "cp.async"};

struct Wavefronts { unsigned found = 0, ideal = 0; };

// One phase: the word addresses of its lanes.
Wavefronts phase(std::array<uint32_t, 64>& words, unsigned count) {
  std::sort(words.begin(), words.begin() + count);
  count = unsigned(std::unique(words.begin(), words.begin() + count) - words.begin());
  unsigned in_bank[32] = {}, most = 0;
  for (unsigned i = 0; i < count; ++i) most = std::max(most, ++in_bank[words[i] % 32]);
  return {most, (count + 31) / 32};
}

// Copies of 16 bytes go past L1 and take one wavefront for each quarter warp, wherever they write.
Wavefronts past_l1(uint32_t lanes) {
  unsigned quarters = 0;
  for (; lanes != 0; lanes >>= 8) quarters += (lanes & 0xff) != 0;
  return {quarters, quarters};
}

Wavefronts wavefronts(const SharedAccess* const* access, int kind, unsigned bytes, uint32_t lanes) {
  if (kind == kCopy && bytes == 16) return past_l1(lanes);
  const unsigned width = std::max(bytes, 4u), lanes_of_phase = std::min(32u, std::bit_floor(128 / width));
  Wavefronts sum;
  for (unsigned begin = 0; begin < kLanes; begin += lanes_of_phase) {
    std::array<uint32_t, 64> words;
    unsigned count = 0;
    for (unsigned lane = begin; lane < begin + lanes_of_phase; ++lane) {
      if (!(lanes >> lane & 1)) continue;
      const uint32_t first = access[lane]->address / 4, last = (access[lane]->address + bytes - 1) / 4;
      for (uint32_t word = first; word <= last; ++word) words[count++] = word;
    }
    const Wavefronts of_phase = phase(words, count);
    sum.found += of_phase.found, sum.ideal += of_phase.ideal;
  }
  return sum;
}

void add(int line, int kind, unsigned bytes, const Wavefronts& found) {
  Traffic& entry = traffic[{state.launch.number, line, uint8_t(kind), uint16_t(bytes)}];
  ++entry.instructions, entry.wavefronts += found.found, entry.ideal += found.ideal;
  if (found.found - found.ideal > entry.worst - entry.worst_ideal || entry.instructions == 1) {
    entry.worst = found.found, entry.worst_ideal = found.ideal;
  }
}

bool same_instruction(const SharedAccess& a, const SharedAccess& b) {
  return a.line == b.line && a.kind == b.kind && a.bytes == b.bytes;
}

// All lanes did the same things in the same order: the i-th access of each is one instruction.
bool in_step(const Warp& warp) {
  const auto& first = warp.thread[0]->accesses;
  for (unsigned lane = 1; lane < warp.size; ++lane) {
    const auto& other = warp.thread[lane]->accesses;
    if (!std::equal(first.begin(), first.end(), other.begin(), other.end(), same_instruction)) return false;
  }
  return true;
}

void count_in_step(const Warp& warp) {
  const SharedAccess* access[kLanes];
  for (size_t i = 0; i < warp.thread[0]->accesses.size(); ++i) {
    for (unsigned lane = 0; lane < warp.size; ++lane) access[lane] = &warp.thread[lane]->accesses[i];
    add(access[0]->line, access[0]->kind, access[0]->bytes,
        wavefronts(access, access[0]->kind, access[0]->bytes, warp.existing()));
  }
}

// Lanes took different ways: the i-th access of each on one line is taken for one instruction.
void count_by_line(const Warp& warp) {
  struct Instruction { uint32_t lanes = 0; const SharedAccess* access[kLanes] = {}; };
  std::map<std::tuple<int, uint8_t, uint16_t>, std::vector<Instruction>> lines;
  for (unsigned lane = 0; lane < warp.size; ++lane) {
    std::map<std::tuple<int, uint8_t, uint16_t>, size_t> seen;
    for (const SharedAccess& one : warp.thread[lane]->accesses) {
      const std::tuple key{one.line, one.kind, one.bytes};
      auto& of_line = lines[key];
      const size_t turn = seen[key]++;
      if (of_line.size() <= turn) of_line.resize(turn + 1);
      of_line[turn].lanes |= 1u << lane, of_line[turn].access[lane] = &one;
    }
  }
  for (const auto& [key, instructions] : lines) {
    const auto [line, kind, bytes] = key;
    for (const Instruction& one : instructions) add(line, kind, bytes, wavefronts(one.access, kind, bytes, one.lanes));
  }
}

}  // namespace

void note_shared(uint32_t address, unsigned bytes, int kind) {
  if constexpr (kScale > 1) return;  // what is counted in bytes is counted on bytes
  state.self->accesses.push_back({address, line, uint16_t(bytes), uint8_t(kind)});
}

void count_wavefronts(Warp& warp) {
  if (in_step(warp)) count_in_step(warp);
  else count_by_line(warp);
  for (unsigned lane = 0; lane < warp.size; ++lane) warp.thread[lane]->accesses.clear();
}

// A matrix instruction: eight rows of 16 bytes in each phase.
void count_rows(int line, int kind, const uint32_t* rows, unsigned count) {
  if constexpr (kScale > 1) return;
  Wavefronts sum;
  for (unsigned begin = 0; begin < count; begin += 8) {
    std::array<uint32_t, 64> words;
    for (unsigned i = 0; i < 32; ++i) words[i] = rows[begin + i / 4] / 4 + i % 4;
    const Wavefronts of_phase = phase(words, 32);
    sum.found += of_phase.found, sum.ideal += of_phase.ideal;
  }
  add(line, kind, 16, sum);
}

void print_wavefronts() {
  for (const auto& [key, entry] : traffic) {
    const auto [launch, line, kind, bytes] = key;
    std::printf("shared kernel=%d line=%d access=%s bytes=%d instructions=%llu wavefronts=%llu ideal=%llu worst=%u "
                "worst_ideal=%u\n", launch, line, kKindName[kind], bytes, (unsigned long long)entry.instructions,
                (unsigned long long)entry.wavefronts, (unsigned long long)entry.ideal, entry.worst, entry.worst_ideal);
  }
}

}  // namespace kdsl
