/* Degrees: `degree` bounds the L1 norm of the exponents of every (Laurent) monomial, `linear` the sum of absolute
   coefficients where the value is an exponent, `literal` marks constants. See algebra.py. The three are packed into one
   word, so that they stay in a register: degree in bits 32 to 61, linear in 0 to 29, literal in 30. The word is the
   first half of a `val`, whose second half is zero. */
typedef u64 deg;
typedef u64 halves __attribute__((vector_size(16), aligned(4)));
#define MOST 0x3fffffffu
#define LITERAL (1u << 30)

static u32 exponents; /* the largest degree of an exponent */

INLINE deg word(val a) { return ((halves)a)[0]; }
INLINE val of_word(deg a) { return (val)(halves){a}; }
INLINE u32 degree_of(deg a) { return a >> 32; }
INLINE u32 linear_of(deg a) { return a & MOST; }
INLINE u32 is_literal(deg a) { return a & LITERAL; }
INLINE deg degree(u32 of, u32 linear, u32 literal) { return (u64)of << 32 | linear | literal; }
INLINE u32 least(u64 a) { return a > MOST ? MOST : (u32)a; }
INLINE u32 most(u32 a, u32 b) { return a > b ? a : b; }
INLINE deg degree_add(deg a, deg b) {
  if (a == LITERAL) return b; /* the constant 0 */
  if (b == LITERAL) return a;
  return degree(most(degree_of(a), degree_of(b)), least((u64)linear_of(a) + linear_of(b)), is_literal(a & b));
}
INLINE deg degree_mul(deg a, deg b) {
  u32 linear = is_literal(a | b) ? least((u64)linear_of(a) * linear_of(b)) : 1;
  return degree(least((u64)degree_of(a) + degree_of(b)), linear, is_literal(a & b));
}
/* A quotient by a sum is an indeterminate of its own, by a monomial it is one more monomial. */
INLINE deg degree_divide(deg a, deg b) {
  return degree_mul(a, degree(is_literal(b) ? 0 : most(degree_of(b), 1), most(linear_of(b), 1), is_literal(b)));
}
INLINE deg degree_integer(i64 a) { return degree(0, least(a < 0 ? -a : a), LITERAL); }
INLINE deg opaque(deg a) {
  exponents = most(exponents, degree_of(a));
  return is_literal(a) ? a : degree(1, 1, 0);
}
INLINE deg degree_exp(deg a) {
  exponents = most(exponents, degree_of(a));
  return is_literal(a) ? degree(0, 1, LITERAL) : degree(most(linear_of(a), 1), 1, 0);
}

/* Sums of products. The degree of a sum is the largest of its products', constants having none. A product of two values
   has the coefficient 1, of a value and the constant 0 none, and one of zeros is left out: where zeros are the only
   constants, they are counted as bits. Other rows and columns take their sums one by one. */
typedef struct { u64 zeros; int other; } constants;

INLINE void note(constants *found, deg a, i64 t, i64 k) {
  if (a == LITERAL && k <= 64) found->zeros |= 1ull << t;
  else if (is_literal(a)) found->other = 1;
}
__attribute__((optimize("O3"))) static void degree_multiply(i64 m, i64 n, i64 k, const val *x, const val *y, val *sums) {
  constants *columns = calloc(n, sizeof(constants));
  int32_t *degrees = malloc(4 * k * n), *best = malloc(4 * n);
  for (i64 t = 0; t < k; t++)
    for (i64 j = 0; j < n; j++) {
      deg b = word(y[t * n + j]);
      note(&columns[j], b, t, k);
      degrees[t * n + j] = degree_of(b);
    }
  for (i64 i = 0; i < m; i++) {
    constants row = {};
    for (i64 j = 0; j < n; j++) best[j] = 0;
    for (i64 t = 0; t < k; t++) {
      deg a = word(x[i * k + t]);
      int32_t more = degree_of(a);
      const int32_t *of = degrees + t * n;
      note(&row, a, t, k);
      for (i64 j = 0; j < n; j++) best[j] = more + of[j] > best[j] ? more + of[j] : best[j]; /* below 2^31 */
    }
    for (i64 j = 0; j < n; j++) {
      deg sum = LITERAL;
      if (row.other | columns[j].other)
        for (i64 t = 0; t < k; t++) sum = degree_add(sum, degree_mul(word(x[i * k + t]), word(y[t * n + j])));
      else if (__builtin_popcountll(row.zeros & columns[j].zeros) < k)
        sum = degree(least(best[j]), least(k - __builtin_popcountll(row.zeros | columns[j].zeros)), 0);
      sums[i * n + j] = of_word(sum);
    }
  }
  free(columns); free(degrees); free(best);
}
