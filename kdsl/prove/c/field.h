/* Field elements in Montgomery form (Montgomery 1985), below 2^31; bit 31: fed by something never written. A `val` has
   WIDTH of them, one for each of the trials that run at once: indices and branches look at no value, so the trials
   differ in their numbers alone. Each has primes of its own. */
#ifdef __SSE2__
#include <emmintrin.h>
#endif
#define WIDTH 4
typedef u32 val __attribute__((vector_size(4 * WIDTH), aligned(4)));
typedef int32_t sign __attribute__((vector_size(4 * WIDTH), aligned(4)));
#define TAINT 0x80000000u
#define BITS 0x7fffffffu

static struct { val p, inverse, square; } F[LEVELS]; /* p; -1/p mod 2^32; 2^64 mod p */
static u64 salt[WIDTH];
static val ONE[LEVELS], LN2[LEVELS], LOG2E[LEVELS];
static u32 TABLE[LEVELS][3][WIDTH][2048];

INLINE val wrapped(val x, val p) { return x + (p & (val)((sign)x >> 31)); } /* x, and p more where it is negative */
#ifdef __SSE2__
INLINE __m128i half(__m128i a, __m128i b, __m128i inverse, __m128i p) { /* the even ones, their results above */
  __m128i x = _mm_mul_epu32(a, b), m = _mm_mul_epu32(x, inverse);
  return _mm_add_epi64(x, _mm_mul_epu32(m, p));
}
INLINE val product(int L, val a, val b) {
  __m128i x = (__m128i)a, y = (__m128i)b, inverse = (__m128i)F[L].inverse, p = (__m128i)F[L].p;
  __m128i even = half(x, y, inverse, p);
  __m128i odd = half(_mm_srli_epi64(x, 32), _mm_srli_epi64(y, 32), _mm_srli_epi64(inverse, 32), _mm_srli_epi64(p, 32));
  __m128i high = _mm_set_epi32(-1, 0, -1, 0);
  return (val)_mm_or_si128(_mm_srli_epi64(even, 32), _mm_and_si128(odd, high));
}
#else
INLINE val product(int L, val a, val b) {
  val y;
  for (int t = 0; t < WIDTH; t++) {
    u64 x = (u64)a[t] * b[t];
    y[t] = (x + (u64)((u32)x * F[L].inverse[t]) * F[L].p[t]) >> 32;
  }
  return y;
}
#endif
INLINE val times(int L, val a, val b) { return wrapped(product(L, a, b) - F[L].p, F[L].p); } /* without bit 31 */
INLINE val enter(int L, val x) { return times(L, x & BITS, F[L].square) | (x & TAINT); }
INLINE val plain(int L, val x) { return times(L, x & BITS, (val){} + 1); }

INLINE val sub(int L, val a, val b) { return wrapped((a & BITS) - (b & BITS), F[L].p) | ((a | b) & TAINT); }
INLINE val add(int L, val a, val b) {
  return wrapped((a & BITS) - (F[L].p - (b & BITS)), F[L].p) | ((a | b) & TAINT);
}
INLINE val mul(int L, val a, val b) { return times(L, a & BITS, b & BITS) | ((a | b) & TAINT); }
INLINE val negate(int L, val a) { return sub(L, (val){}, a); }
INLINE val square(int L, val a) { return mul(L, a, a); }
static val inverse_(int L, val a) {
  val r = ONE[L], taint = a & TAINT, e = F[L].p - 2;
  a &= BITS;
  for (int t = 0; t < WIDTH; t++) if (!a[t] && !fault) fault = 2;
  for (int i = 0; i < 31; i++, a = times(L, a, a)) {
    val bit = (val){} - (e >> i & 1);
    r = (times(L, r, a) & bit) | (r & ~bit);
  }
  return r | taint;
}
INLINE val divide(int L, val a, val b) { return mul(L, a, inverse_(L, b)); }
static val integer(int L, i64 a) {
  val x;
  for (int t = 0; t < WIDTH; t++) x[t] = floormod(a, F[L].p[t]);
  return enter(L, x);
}
INLINE val choose(i64 c, val a, val b) { return c ? a : b; }

static val random_(int L, u64 tag, int from, val a) {
  val x = plain(from, a);
  for (int t = 0; t < WIDTH; t++) {
    u64 z = ((u64)x[t] << 8 | tag) + salt[t];
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    x[t] = z % (F[L].p[t] - 1) + 1;
  }
  return enter(L, x) | (a & TAINT);
}
static val sqrt_(int L, val a) { return random_(L, L * 9, L, a); }
static val log_(int L, int from, val a) { return random_(L, 64 + from * 8 + L, from, a); }
static val rsqrt_(int L, val a) { return inverse_(L, sqrt_(L, a)); }
static val exp_(int L, val a) {
  val x = plain(L + 1, a), low, middle, high;
  for (int t = 0; t < WIDTH; t++) {
    low[t] = TABLE[L][0][t][x[t] & 2047];
    middle[t] = TABLE[L][1][t][x[t] >> 11 & 2047];
    high[t] = TABLE[L][2][t][x[t] >> 22];
  }
  return times(L, times(L, low, middle), high) | (a & TAINT);
}
INLINE val exp2_(int L, val a) { return exp_(L, mul(L + 1, a, LN2[L + 1])); }
static val sigmoid_(int L, val a) { return inverse_(L, add(L, ONE[L], exp_(L, negate(L + 1, a)))); }
static val tanh_(int L, val a) {
  val e = exp_(L, add(L + 1, a, a));
  return divide(L, sub(L, e, ONE[L]), add(L, e, ONE[L]));
}

static val *new_val(i64 n) {
  val *p = malloc(sizeof(val) * (n > 0 ? n : 1));
  for (i64 i = 0; i < n; i++) p[i] = (val){} + (TAINT | 12345);
  return p;
}
static void record(const val *data, i64 n, int number, int keys, ...) { /* of the first trial */
  va_list list;
  trace_put(number); trace_put(keys); trace_put(n);
  va_start(list, keys);
  for (int i = 0; i < keys; i++) trace_put(va_arg(list, i64));
  va_end(list);
  for (i64 i = 0; i < n; i++) trace_put(data[i][0]);
}

static val LIT[LIT_COUNT + 1];
/* primes, roots, ln 2 and its inverses by level, literals in plain form: of each the trials' numbers in a row */
EXPORT void setup(int depth, const val *p, const val *w, const val *ln2, const val *log2e, const u64 *s, const val *literals) {
  memcpy(salt, s, sizeof salt);
  for (int L = 0; L < depth; L++) {
    val x = (val){} + 1;
    for (int i = 0; i < 5; i++) x *= 2 - p[L] * x; /* Newton: 1/p mod 2^32 */
    F[L].p = p[L]; F[L].inverse = -x;
    for (int t = 0; t < WIDTH; t++) {
      u64 r = ((u64)1 << 32) % p[L][t];
      F[L].square[t] = r * r % p[L][t];
    }
    ONE[L] = enter(L, (val){} + 1); LN2[L] = enter(L, ln2[L]); LOG2E[L] = enter(L, log2e[L]);
  }
  for (int L = 0; L + 1 < depth; L++) {
    val power = enter(L, w[L]);
    for (int i = 0; i < 3; i++) {
      val entry = ONE[L];
      for (int j = 0; j < 2048; j++, entry = times(L, entry, power))
        for (int t = 0; t < WIDTH; t++) TABLE[L][i][t][j] = entry[t];
      power = entry;
    }
  }
  for (int i = 0; i < LIT_COUNT; i++) LIT[i] = enter(LIT_LEVEL[i], literals[i]);
}
EXPORT void to_field(int L, val *x, i64 n) { for (i64 i = 0; i < n; i++) x[i] = enter(L, x[i]); }
EXPORT void from_field(int L, val *x, i64 n) { for (i64 i = 0; i < n; i++) x[i] = plain(L, x[i]) | (x[i] & TAINT); }
