/* Products of tiles over the fields: sums[i * n + j] is the sum over t of x[i * k + t] y[t * n + j], written where all of
   its factors are.

   Factors are reduced first, whatever memory held, so a product is below p^2 < 2^31 p, since p < 2^31. A sum in 64 bits is
   kept below 2^32 p < 2^63: two more products leave it below 2^33 p < 2^64, and 2^32 p, which is zero, is taken off where
   the upper half is p or more. In the end the sum by 2^32 is below 2 p, as `times` has it. */
#define ROWS 2 /* of a block, whose sums stay in registers */
#define COLUMNS 4

#ifdef __SSE2__
typedef struct { __m128i even, odd; } __attribute__((aligned(32))) factor; /* in the lower halves of 64 bits */

INLINE factor factor_of(val x) { return (factor){(__m128i)x, _mm_srli_epi64((__m128i)x, 32)}; }
INLINE factor upper(val p) { /* 2^32 p */
  return (factor){_mm_slli_epi64((__m128i)p, 32), _mm_and_si128((__m128i)p, _mm_set_epi32(-1, 0, -1, 0))};
}
INLINE val reduced(int L, factor sum) {
  factor u = factor_of(F[L].inverse), p = factor_of(F[L].p);
  __m128i even = _mm_add_epi64(sum.even, _mm_mul_epu32(_mm_mul_epu32(sum.even, u.even), p.even));
  __m128i odd = _mm_add_epi64(sum.odd, _mm_mul_epu32(_mm_mul_epu32(sum.odd, u.odd), p.odd));
  val x = (val)_mm_or_si128(_mm_srli_epi64(even, 32), _mm_and_si128(odd, _mm_set_epi32(-1, 0, -1, 0)));
  return wrapped(x - F[L].p, F[L].p);
}
INLINE __m128i lessened(__m128i sum, __m128i p) { /* by 2^32 p, unless that is more */
  __m128i less = _mm_sub_epi64(sum, p); /* its upper half between -p and p */
  return _mm_add_epi64(less, _mm_and_si128(_mm_srai_epi32(less, 31), p));
}
INLINE factor plus(factor sum, factor x, factor y) {
  return (factor){_mm_add_epi64(sum.even, _mm_mul_epu32(x.even, y.even)), _mm_add_epi64(sum.odd, _mm_mul_epu32(x.odd, y.odd))};
}
INLINE factor less(factor sum, factor p) { return (factor){lessened(sum.even, p.even), lessened(sum.odd, p.odd)}; }
#else
typedef struct { u64 of[WIDTH]; } factor;

INLINE factor factor_of(val x) {
  factor f;
  for (int t = 0; t < WIDTH; t++) f.of[t] = x[t];
  return f;
}
INLINE factor upper(val p) {
  factor f;
  for (int t = 0; t < WIDTH; t++) f.of[t] = (u64)p[t] << 32;
  return f;
}
INLINE val reduced(int L, factor sum) {
  val x;
  for (int t = 0; t < WIDTH; t++) x[t] = (sum.of[t] + (u64)((u32)sum.of[t] * F[L].inverse[t]) * F[L].p[t]) >> 32;
  return wrapped(x - F[L].p, F[L].p);
}
INLINE factor plus(factor sum, factor x, factor y) {
  for (int t = 0; t < WIDTH; t++) sum.of[t] += x.of[t] * y.of[t];
  return sum;
}
INLINE factor less(factor sum, factor p) {
  for (int t = 0; t < WIDTH; t++) sum.of[t] -= sum.of[t] >= p.of[t] ? p.of[t] : 0;
  return sum;
}
#endif

/* Of `k` terms, an even number. */
static void block_any(i64 k, i64 n, const factor *p, const factor *x, const factor *y, factor sums[ROWS][COLUMNS]) {
  factor s[ROWS][COLUMNS] = {}, q = *p;
  for (i64 t = 0; t < k; t += 2)
#pragma GCC unroll 2
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
      for (int j = 0; j < COLUMNS; j++)
        s[i][j] = less(plus(plus(s[i][j], x[i * k + t], y[t * n + j]), x[i * k + t + 1], y[(t + 1) * n + j]), q);
  memcpy(sums, s, sizeof s);
}

#if defined(__SSE2__) && defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define AVX2
typedef u64 four __attribute__((vector_size(32), may_alias));
typedef int eight __attribute__((vector_size(32), may_alias));
__attribute__((target("avx2")))
static void block_avx2(i64 k, i64 n, const factor *p, const factor *x, const factor *y, factor sums[ROWS][COLUMNS]) {
  const eight *a = (const eight *)x, *b = (const eight *)y;
  four s[ROWS][COLUMNS] = {}, q = *(const four *)p;
  for (i64 t = 0; t < k; t += 2)
#pragma GCC unroll 2
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
      for (int j = 0; j < COLUMNS; j++) {
        four sum = s[i][j] + (four)__builtin_ia32_pmuludq256(a[i * k + t], b[t * n + j]);
        sum += (four)__builtin_ia32_pmuludq256(a[i * k + t + 1], b[(t + 1) * n + j]);
        /* the lower halves stay; the upper half less p wraps around where it is below p */
        s[i][j] = (four)__builtin_ia32_pminud256((eight)sum, (eight)(sum - q));
      }
#pragma GCC unroll 2
  for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
    for (int j = 0; j < COLUMNS; j++) *(four *)&sums[i][j] = s[i][j];
}
#endif

static factor *factors;
static i64 factors_room;

INLINE factor laid(int L, val x, val *written) {
  *written &= x;
  return factor_of(times(L, x & BITS, ONE[L] & BITS));
}

static void field_multiply(int L, i64 m, i64 n, i64 k, const val *x, const val *y, val *sums) {
  void (*block)(i64, i64, const factor *, const factor *, const factor *, factor[ROWS][COLUMNS]) = block_any;
#ifdef AVX2
  if (__builtin_cpu_supports("avx2")) block = block_avx2;
#endif
  i64 rows = (m + ROWS - 1) / ROWS * ROWS, across = (n + COLUMNS - 1) / COLUMNS * COLUMNS, depth = (k + 1) / 2 * 2;
  if (factors_room < (rows + across) * depth) {
    free(factors);
    factors_room = (rows + across) * depth;
    factors = aligned_alloc(32, sizeof(factor) * factors_room);
  }
  factor *a = factors, *b = a + rows * depth, p = upper(F[L].p), found[ROWS][COLUMNS];
  val beside[rows], below[across];
  memset(beside, -1, sizeof beside);
  memset(below, -1, sizeof below);
  memset(factors, 0, sizeof(factor) * (rows + across) * depth); /* beyond m, n and k */
  for (i64 i = 0; i < m; i++)
    for (i64 t = 0; t < k; t++) a[i * depth + t] = laid(L, x[i * k + t], &beside[i]);
  for (i64 t = 0; t < k; t++)
    for (i64 j = 0; j < n; j++) b[t * across + j] = laid(L, y[t * n + j], &below[j]);
  for (i64 i = 0; i < m; i += ROWS)
    for (i64 j = 0; j < n; j += COLUMNS) {
      block(depth, across, &p, a + i * depth, b + j, found);
      for (int r = 0; r < ROWS && i + r < m; r++)
        for (int c = 0; c < COLUMNS && j + c < n; c++)
          sums[(i + r) * n + j + c] = reduced(L, found[r][c]) | (beside[i + r] & below[j + c] & WRITTEN);
    }
}
