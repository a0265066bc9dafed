/* Ordinary numbers in double precision: an execution beside the proof, for questions about mutants. NaN: unwritten. */
#include <math.h>
typedef double val;
static val ONE[LEVELS], LN2[LEVELS], LOG2E[LEVELS];
INLINE val add(int L, val a, val b) { return a + b; }
INLINE val sub(int L, val a, val b) { return a - b; }
INLINE val mul(int L, val a, val b) { return a * b; }
INLINE val divide(int L, val a, val b) { return a / b; }
INLINE val negate(int L, val a) { return -a; }
INLINE val square(int L, val a) { return a * a; }
INLINE val integer(int L, i64 a) { return (val)a; }
INLINE val choose(i64 c, val a, val b) { return c ? a : b; }
static val sqrt_(int L, val a) { return sqrt(a); }
static val rsqrt_(int L, val a) { return 1 / sqrt(a); }
static val log_(int L, int from, val a) { return log(a); }
static val exp_(int L, val a) { return exp(a); }
static val exp2_(int L, val a) { return exp2(a); }
static val sigmoid_(int L, val a) { return 1 / (1 + exp(-a)); }
static val tanh_(int L, val a) { return tanh(a); }
static val *tile(int which, i64 n) {
  static val *room[3];
  return room[which] = realloc(room[which], sizeof(val) * n);
}
static void multiply(int L, i64 m, i64 n, i64 k, const val *x, const val *y, val *sums) {
  for (i64 i = 0; i < m; i++)
    for (i64 j = 0; j < n; j++) {
      val sum = 0;
      for (i64 t = 0; t < k; t++) sum += x[i * k + t] * y[t * n + j];
      sums[i * n + j] = sum;
    }
}
static val *new_val(i64 n) {
  val *p = malloc(8 * (n > 0 ? n : 1));
  for (i64 i = 0; i < n; i++) p[i] = NAN;
  return p;
}
static void record(const val *data, i64 n, int number, int keys, ...) {}
static val literal_values[LIT_COUNT + 1];
EXPORT void setup(const double *literals) {
  for (int L = 0; L < LEVELS; L++) { ONE[L] = 1; LN2[L] = 0.693147180559945309; LOG2E[L] = 1.442695040888963407; }
  for (int i = 0; i < LIT_COUNT; i++) literal_values[i] = literals[i];
}
