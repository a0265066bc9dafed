/* Integers, faults and traces: what every algebra shares. */
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;

#define LEVELS 8
#ifdef RUN_FAST
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif
#define EXPORT __attribute__((visibility("default")))

static int reverse, tracing;
static i64 fault, fault_message, fault_index, fault_extent; /* 1: index outside, 2: division by zero */

static __attribute__((noinline, cold)) i64 outside(i64 i, i64 n, int message) {
  if (!fault) { fault = 1; fault_message = message; fault_index = i; fault_extent = n; }
  return 0;
}
/* An empty buffer still has one element to read: the fault is already reported. */
INLINE i64 at(i64 i, i64 n, int message) {
  return __builtin_expect((u64)i < (u64)n, 1) ? i : outside(i, n, message);
}
INLINE i64 nonzero(i64 b) {
  if (__builtin_expect(b != 0, 1)) return b;
  if (!fault) fault = 2;
  return 1;
}
INLINE i64 floordiv(i64 a, i64 b) { b = nonzero(b); i64 q = a / b; return q - (a % b && (a < 0) != (b < 0)); }
INLINE i64 floormod(i64 a, i64 b) { b = nonzero(b); i64 r = a % b; return r && (r < 0) != (b < 0) ? r + b : r; }
INLINE i64 truncdiv(i64 a, i64 b) { return a / nonzero(b); }
INLINE i64 truncmod(i64 a, i64 b) { return a % nonzero(b); }
INLINE i64 smaller(i64 a, i64 b) { return a < b ? a : b; }
INLINE i64 larger(i64 a, i64 b) { return a > b ? a : b; }
INLINE i64 pick(i64 c, i64 a, i64 b) { return c ? a : b; }
static i64 *new_i64(i64 n) { return calloc(n > 0 ? n : 1, 8); }

/* A trace is a list of records: number, keys, elements, then the keys and the elements, each in 8 bytes. */
static i64 *trace;
static i64 trace_length, trace_room;
static void trace_put(i64 x) {
  if (trace_length == trace_room) { trace_room = trace_room ? 2 * trace_room : 1 << 16; trace = realloc(trace, 8 * trace_room); }
  trace[trace_length++] = x;
}
EXPORT i64 *trace_data(i64 *length) { *length = trace_length; return trace; }
EXPORT void trace_free(void) { free(trace); trace = 0; trace_length = trace_room = 0; }
