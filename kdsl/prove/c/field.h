/* Field elements in Montgomery form (Montgomery 1985), below 2^31; bit 31: everything that feeds it was written, so that
   memory of zeros, which costs nothing until it is touched, is memory that nobody wrote. A `val` has WIDTH of them, one for each of the trials that run at once: indices and branches look at no value, so the trials
   differ in their numbers alone. Each has primes of its own. */
#ifdef __SSE2__
#include <emmintrin.h>
#endif
typedef int32_t sign __attribute__((vector_size(4 * WIDTH), aligned(4)));
#define WRITTEN 0x80000000u
#define BITS 0x7fffffffu

static struct { val p, inverse, square; } F[LEVELS]; /* p; -1/p mod 2^32; 2^64 mod p */
static u64 salt[WIDTH];
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
INLINE val enter(int L, val x) { return times(L, x & BITS, F[L].square) | (x & WRITTEN); }
INLINE val plain(int L, val x) { return times(L, x & BITS, (val){} + 1); }

INLINE val field_sub(int L, val a, val b) { return wrapped((a & BITS) - (b & BITS), F[L].p) | (a & b & WRITTEN); }
INLINE val field_add(int L, val a, val b) {
  return wrapped((a & BITS) - (F[L].p - (b & BITS)), F[L].p) | (a & b & WRITTEN);
}
INLINE val field_mul(int L, val a, val b) { return times(L, a & BITS, b & BITS) | (a & b & WRITTEN); }
INLINE val field_negate(int L, val a) { return field_sub(L, (val){} + WRITTEN, a); }
static val inverse_(int L, val a) {
  val r = ONE[L] & BITS, written = a & WRITTEN, e = F[L].p - 2;
  for (int t = 0; t < WIDTH; t++) if (a[t] == WRITTEN && !fault) fault = 2; /* zero; what nobody wrote is told by its bit */
  a &= BITS;
  for (int i = 0; i < 31; i++, a = times(L, a, a)) {
    val bit = (val){} - (e >> i & 1);
    r = (times(L, r, a) & bit) | (r & ~bit);
  }
  return r | written;
}
INLINE val field_divide(int L, val a, val b) { return field_mul(L, a, inverse_(L, b)); }
static val field_integer(int L, i64 a) {
  val x;
  for (int t = 0; t < WIDTH; t++) x[t] = floormod(a, F[L].p[t]);
  return enter(L, x | WRITTEN);
}

static val random_(int L, u64 tag, int from, val a) {
  val x = plain(from, a);
  for (int t = 0; t < WIDTH; t++) {
    u64 z = ((u64)x[t] << 8 | tag) + salt[t];
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    x[t] = z % (F[L].p[t] - 1) + 1;
  }
  return enter(L, x) | (a & WRITTEN);
}
static val field_exp(int L, val a) {
  val x = plain(L + 1, a), low, middle, high;
  for (int t = 0; t < WIDTH; t++) {
    low[t] = TABLE[L][0][t][x[t] & 2047];
    middle[t] = TABLE[L][1][t][x[t] >> 11 & 2047];
    high[t] = TABLE[L][2][t][x[t] >> 22];
  }
  return times(L, times(L, low, middle), high) | (a & WRITTEN);
}
static val field_sqrt(int L, val a) { return random_(L, L * 9, L, a); }
static val field_log(int L, int from, val a) { return random_(L, 64 + from * 8 + L, from, a); }
static val field_rsqrt(int L, val a) { return inverse_(L, field_sqrt(L, a)); }
static val field_sigmoid(int L, val a) { return inverse_(L, field_add(L, ONE[L], field_exp(L, field_negate(L + 1, a)))); }
static val field_tanh(int L, val a) {
  val e = field_exp(L, field_add(L + 1, a, a));
  return field_divide(L, field_sub(L, e, ONE[L]), field_add(L, e, ONE[L]));
}
