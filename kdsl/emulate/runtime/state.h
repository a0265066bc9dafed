// The state of an emulation: the launch, its block, warps and threads, its memory. One of each is at work at a time.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "../device/interface.h"
#include "fibers.h"

namespace kdsl {

constexpr unsigned kLanes = 32, kMostThreads = 1024;
constexpr unsigned kSharedShift = kScale;  // log2 of the bytes of a cell of shared memory: two bytes of the device

// When, by whom and on which line some bytes were last touched. `time` counts barriers: everything before a barrier
// has a smaller time than everything after it. 0 is never.
struct Stamp {
  uint32_t time = 0;
  uint32_t thread : 11 = 0;
  uint32_t line : 21 = 0;
};
constexpr uint32_t kInFlight = UINT32_MAX;  // an asynchronous copy writes here and has not been waited for
constexpr unsigned kEngine = kMostThreads;  // the thread of a copy that has landed; its time is the arrival it belongs to

// The history of one granule of memory: enough of its readers that a racing write always meets one of them.
// `read` is the last one, `read_beside` the last other lane of its warp, `read_elsewhere` the last of another warp,
// `first_read` the first of the launch.
struct Cell {
  Stamp written, first_read, read, read_beside, read_elsewhere;
};

enum class Role : uint8_t { input, output, updated, workspace, shared };

struct Region {
  char* base;
  size_t bytes;
  Role role;
  int number;               // as findings name it
  unsigned granule_shift;   // log2 of the bytes of a cell
  Cell* cells = nullptr;    // none for inputs: nobody may write them
};

struct Copy {  // cp.async; `bytes` and `read` as they lie here
  uint32_t to;
  const Region* region;
  uintptr_t from;
  unsigned bytes, read, group;
  int line;
  bool landed;
};

// What an access is about to write: bytes, or those of an asynchronous copy.
struct Written { const void* bytes; const Copy* copy; };

struct SharedAccess {
  uint32_t address;
  int line;
  uint16_t bytes;
  uint8_t kind;
};

enum class Waits : uint8_t { nothing, warp, lanes, block, condition, ended };

// What is known to have happened before: of each thread everything earlier than a time, and of the arrivals of bulk
// copies those in the set. Empty where only barriers of warps and blocks order threads.
struct Knowledge {
  std::vector<uint32_t> before;
  std::vector<bool> arrivals;
  void join(const Knowledge& other);
  bool has(uint32_t arrival) const { return arrival < arrivals.size() && arrivals[arrival]; }
};

// A copy of shared memory to global memory in a bulk group, or the operands of an asynchronous product.
struct AsyncRead {
  uint32_t from;
  unsigned bytes, group;
  const Region* region;  // where it is copied to; null for a product
  uintptr_t to;
  bool done;
};


// What a product brings to a register of its thread once that has waited for its group.
struct Result {
  f32* place;
  f32 value;
  unsigned group;
};

struct Warp;
struct Thread {
  unsigned number = 0, lane = 0;
  Warp* warp = nullptr;
  Place place{};
  Waits waits = Waits::nothing;
  int line = 0;
  const char* operation = "";         // of the warp, that it waits in
  void (*resolve)(Warp&, uint32_t) = nullptr;
  uint32_t lanes = 0;                 // that take part in it
  u32 in[8] = {}, out[4] = {};        // what it hands in and gets back
  f32 c[4] = {}, d[4] = {};
  unsigned groups = 0;                // of copies, committed so far
  std::vector<Copy> copies;           // issued and not yet waited for
  std::vector<SharedAccess> accesses; // since its warp was last together
  bool (*ready)(Thread&) = nullptr;   // the condition that it waits for, about `awaited`
  uint32_t awaited[2] = {};
  Knowledge knows;
  uint32_t fenced = 0;                // time of its last proxy fence
  std::vector<AsyncRead> bulk_reads, products;
  unsigned bulk_groups = 0, product_groups = 0;
  uint32_t open_product = 0;          // the number of the product group that is not committed yet
  std::vector<std::pair<unsigned, uint32_t>> open_products;  // groups not waited for, with their numbers
  std::vector<Result> results;        // of these products
  bool products_fenced = false;       // whether a wgmma.fence came after its last wait for products
  struct Operands* operands = nullptr;  // of the warpgroup's product that it takes part in
  Fiber fiber;
};

struct Warp {
  unsigned number = 0, size = 0;   // size: lanes that exist
  uint32_t synchronised = 0;       // time of the last rendezvous that orders memory
  Thread* thread[kLanes] = {};
  uint32_t existing() const { return size == kLanes ? 0xffffffffu : (1u << size) - 1; }
};

struct Launch {
  int number = 0;
  const Kernel* kernel = nullptr;
  std::vector<Argument> arguments;
  Place grid{}, block{};
  size_t dynamic_bytes = 0;
  uint32_t begin = 0;              // time
};

struct State {
  std::mt19937 random;
  uint32_t clock = 1;
  Launch launch;
  uint32_t block_begin = 0, block_synchronised = 0;
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<Warp> warps;
  Thread* self = nullptr;          // null while no thread runs
  char* shared = nullptr;          // the shared window
  size_t shared_bytes = 0;         // of it in use
  std::vector<Region> shared_arrays;  // static ones, then the dynamic one
  Region window{};                 // all of it, for accesses by shared address
  std::vector<Region> buffers;
  std::vector<uint16_t> engine_reads; // how many asynchronous reads of each cell of shared memory are not waited for
  std::vector<Stamp> warp_reads;      // the last read of each cell of shared memory by each warp, where mbarriers are
};

extern State state;

// The asynchronous side of a block: mbarriers, bulk copies, barriers of some threads.
void reset_async();
bool land_one();                           // a bulk copy that the seed chooses; false where none is on its way
uint32_t pending_copies();
void learn_from_block();                   // all threads have met
void learn_from_warp(Warp& warp, uint32_t lanes);
const char* condition_of(const Thread& thread);  // what a thread that never goes on waits for
Knowledge knowledge_of(const Thread& thread);
void wait_until(bool (*ready)(Thread&), uint32_t first, uint32_t second);
bool read_by_engine(uint32_t address, unsigned bytes);
void check_registers(const void* from, unsigned bytes);  // that a store takes to memory
void begin_read(std::vector<AsyncRead>& reads, const AsyncRead& read);
void finish_reads(std::vector<AsyncRead>& reads, unsigned covered);
bool fenced_for_engine(const Stamp& written, const Thread& reader);

void run_launch();                         // every block, in an order that the seed chooses
void give_way(Waits reason);               // the running thread waits
void land_copies(Thread& thread, unsigned pending_groups);
void poison_shared();
void poison_before_copy(uintptr_t target, unsigned bytes);
void note_shared(uint32_t address, unsigned bytes, int kind);
void count_wavefronts(Warp& warp);         // of what its lanes accessed since they last met
void count_rows(int line, int kind, const uint32_t* rows, unsigned count);
void print_wavefronts();

// Checks an access of the running thread, without moving data. False: it must not happen.
bool check_read(const Region& region, uintptr_t address, unsigned bytes, unsigned alignment);
bool check_write(const Region& region, uintptr_t address, unsigned bytes, unsigned alignment, const Written& what);
void stamp_write(const Region& region, uintptr_t address, unsigned bytes, Stamp stamp);
// Waits until all lanes in `lanes` asked for `operation`, of which `resolve` then does the work for the whole warp.
void collective(const char* operation, uint32_t lanes, bool aligned, void (*resolve)(Warp&, uint32_t));

#ifdef KDSL_FIELD
void set_field(std::istream& words);
void print_field();
#endif

// The copy of `thread` that is on its way to `address` in the shared window, or null.
const Copy* copy_in_flight(const Thread& thread, uint32_t address);

enum AccessKind : uint8_t { kLoad, kStore, kLoadMatrix, kStoreMatrix, kCopy };

}  // namespace kdsl
