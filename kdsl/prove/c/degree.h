/* Degrees: `degree` bounds the L1 norm of the exponents of every (Laurent) monomial, `linear` the sum of absolute
   coefficients where the value is an exponent, `literal` marks constants. See algebra.py. The three are packed into one
   word, so that a value stays in a register: degree in bits 32 to 61, linear in 0 to 29, literal in 30. */
typedef u64 val;
#define MOST 0x3fffffffu
#define LITERAL (1u << 30)

static u32 exponents; /* the largest degree of an exponent */
static val ONE[LEVELS], LN2[LEVELS], LOG2E[LEVELS];

INLINE u32 degree_of(val a) { return a >> 32; }
INLINE u32 linear_of(val a) { return a & MOST; }
INLINE u32 is_literal(val a) { return a & LITERAL; }
INLINE val value(u32 degree, u32 linear, u32 literal) { return (u64)degree << 32 | linear | literal; }
INLINE u32 least(u64 a) { return a > MOST ? MOST : (u32)a; }
INLINE u32 most(u32 a, u32 b) { return a > b ? a : b; }
INLINE val add(int L, val a, val b) {
  if (a == LITERAL) return b; /* the constant 0 */
  if (b == LITERAL) return a;
  return value(most(degree_of(a), degree_of(b)), least((u64)linear_of(a) + linear_of(b)), is_literal(a & b));
}
INLINE val sub(int L, val a, val b) { return add(L, a, b); }
INLINE val mul(int L, val a, val b) {
  u32 linear = is_literal(a | b) ? least((u64)linear_of(a) * linear_of(b)) : 1;
  return value(least((u64)degree_of(a) + degree_of(b)), linear, is_literal(a & b));
}
INLINE val negate(int L, val a) { return a; }
INLINE val square(int L, val a) { return mul(L, a, a); }
/* A quotient by a sum is an indeterminate of its own, by a monomial it is one more monomial. */
INLINE val divide(int L, val a, val b) {
  return mul(L, a, value(is_literal(b) ? 0 : most(degree_of(b), 1), most(linear_of(b), 1), is_literal(b)));
}
INLINE val integer(int L, i64 a) { return value(0, least(a < 0 ? -a : a), LITERAL); }
INLINE val choose(i64 c, val a, val b) { return c ? a : b; }
INLINE val opaque(val a) { exponents = most(exponents, degree_of(a)); return is_literal(a) ? a : value(1, 1, 0); }
static val sqrt_(int L, val a) { return opaque(a); }
static val rsqrt_(int L, val a) { return opaque(a); }
static val log_(int L, int from, val a) { return opaque(a); }
static val sigmoid_(int L, val a) { return opaque(a); }
static val tanh_(int L, val a) { return opaque(a); }
INLINE val exp_(int L, val a) {
  exponents = most(exponents, degree_of(a));
  return is_literal(a) ? value(0, 1, LITERAL) : value(most(linear_of(a), 1), 1, 0);
}

INLINE val exp2_(int L, val a) { return exp_(L, mul(L + 1, a, LN2[L + 1])); }
static val *new_val(i64 n) { return calloc(n > 0 ? n : 1, sizeof(val)); }
static void record(const val *data, i64 n, int number, int keys, ...) {}

static val LIT[LIT_COUNT + 1];
EXPORT void setup(const u32 *literals) {
  for (int L = 0; L < LEVELS; L++) ONE[L] = LN2[L] = LOG2E[L] = value(0, 1, LITERAL);
  for (int i = 0; i < LIT_COUNT; i++) LIT[i] = value(0, literals[i], LITERAL);
  exponents = 0;
}
EXPORT u32 largest_exponent(void) { return exponents; }
