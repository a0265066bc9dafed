// What a kernel did wrong, as lines of `finding NAME=VALUE ...` on standard output, each as soon as it is seen.
#pragma once

#include <cstdint>
#include <string>

namespace kdsl {

// One finding. Numbers that mean nothing for its kind stay at -1; the kinds are those of kdsl/emulate/findings.py.
struct Finding {
  const char* kind;
  const char* detail = "";     // what exactly, from a small set of words
  int other_line = -1;         // where the other party was
  int other_thread = -1;       // its number in the block; -1: there is none, -2: it is of another block
  int array = -1;              // buffer number, or kShared and below for shared memory
  int64_t offset = -1;         // bytes from the array's start
  int64_t bytes = -1;          // of the access
};

constexpr int kShared = -2, kRegisters = -3, kUnknown = -4;

void report(const Finding& finding);       // of the running thread; the same place is printed once
void report_host(const Finding& finding);  // of no thread: something about a launch or its results
void print_repetitions();                  // how often each finding came again
[[noreturn]] void end_run(int status);     // prints what was counted and leaves

}  // namespace kdsl
