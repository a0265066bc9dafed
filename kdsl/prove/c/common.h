/* Integers, faults and traces: what every algebra shares. `state.h` has the definitions. */
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;

#define LEVELS 8
#define INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))

extern int reverse, tracing;
extern i64 fault; /* 1: index outside, 2: division by zero */

__attribute__((cold)) i64 outside(i64 i, i64 n, int message);
/* An empty buffer still has one element to read: the fault is already reported. */
INLINE i64 at(i64 i, i64 n, int message) {
  return __builtin_expect((u64)i < (u64)n, 1) ? i : outside(i, n, message);
}
INLINE i64 nonzero(i64 b) {
  if (__builtin_expect(b != 0, 1)) return b;
  if (!fault) fault = 2;
  return 1;
}
static inline i64 floordiv(i64 a, i64 b) { b = nonzero(b); i64 q = a / b; return q - (a % b && (a < 0) != (b < 0)); }
static inline i64 floormod(i64 a, i64 b) { b = nonzero(b); i64 r = a % b; return r && (r < 0) != (b < 0) ? r + b : r; }
static inline i64 truncdiv(i64 a, i64 b) { return a / nonzero(b); }
static inline i64 truncmod(i64 a, i64 b) { return a % nonzero(b); }
static inline i64 smaller(i64 a, i64 b) { return a < b ? a : b; }
static inline i64 larger(i64 a, i64 b) { return a > b ? a : b; }
static inline i64 pick(i64 c, i64 a, i64 b) { return c ? a : b; }
static inline i64 *new_i64(i64 n) { return calloc(n > 0 ? n : 1, 8); }
