// cp.async. A copy's bytes may arrive at any moment from its issue to the wait that covers it: the seed chooses one of
// the two ends, and until the wait its destination belongs to nobody.

#include <algorithm>
#include <cstring>

#include "findings.h"
#include "state.h"

namespace kdsl {
namespace {

void move_bytes(const Copy& copy) {
  char* to = reinterpret_cast<char*>(generic_address(copy.to));
  if (copy.read > 0) std::memcpy(to, reinterpret_cast<const void*>(copy.from), copy.read);
  std::memset(to + copy.read, 0, copy.bytes - copy.read);
}

}  // namespace

// Over fields what was there stays until the copy lands, as on the device: a read before that shows the stale value.
void poison_before_copy(uintptr_t target, unsigned bytes) {
  if constexpr (kScale == 1) std::memset(reinterpret_cast<void*>(target), 0xff, bytes);
}

void copy_async(uint32_t to, const Region* region, uintptr_t from, unsigned bytes, unsigned read) {
  const uintptr_t target = generic_address(to);
  Thread& self = *state.self;
  if (bytes != 4 && bytes != 8 && bytes != 16) outside_emulation("cp.async of a size that is not 4, 8 or 16 bytes");
  if (region == nullptr) outside_emulation("cp.async from the thread's own memory");
  read = std::min(read, bytes) * kScale, bytes *= kScale;
  if (read > 0) {
    // The whole source is aligned to the copy, even where only part of it is read.
    if (!check_read(*region, from, read, bytes)) return;
  }
  Copy copy{to, region, from, bytes, read, self.groups, line, (state.random() & 1) != 0};
  if (!check_write(state.window, target, bytes, bytes, {nullptr, &copy})) return;
  note_shared(to, bytes, kCopy);
  poison_before_copy(target, bytes);
  if (copy.landed) move_bytes(copy);
  stamp_write(state.window, target, bytes, {kInFlight, self.number, uint32_t(line)});
  self.copies.push_back(copy);
}

const Copy* copy_in_flight(const Thread& thread, uint32_t address) {
  for (const Copy& copy : thread.copies) {
    if (copy.to <= address && address < copy.to + copy.bytes / kScale) return &copy;
  }
  return nullptr;
}

void land_copies(Thread& thread, unsigned pending_groups) {
  const unsigned covered = thread.groups - std::min(thread.groups, pending_groups);
  auto waited_for = [&](const Copy& copy) {
    if (copy.group >= covered) return false;
    if (!copy.landed) move_bytes(copy);
    stamp_write(state.window, generic_address(copy.to), copy.bytes,
                {state.clock, thread.number, uint32_t(copy.line)});
    return true;
  };
  std::erase_if(thread.copies, waited_for);
}

void commit_copies() { ++state.self->groups; }
void wait_copies(unsigned pending_groups) { land_copies(*state.self, pending_groups); }
void wait_all_copies() {
  commit_copies();
  wait_copies(0);
}

}  // namespace kdsl
