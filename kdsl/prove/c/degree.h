/* Degrees: `degree` bounds the L1 norm of the exponents of every (Laurent) monomial, `linear` the sum of absolute
   coefficients where the value is an exponent, `literal` marks constants. See algebra.py. */
typedef struct { u32 degree, linear, literal; } val;
#define MOST 0x3fffffffu

static u32 exponents; /* the largest degree of an exponent */
static val ONE[LEVELS], LN2[LEVELS], LOG2E[LEVELS];

INLINE u32 least(u64 a) { return a > MOST ? MOST : (u32)a; }
INLINE u32 most(u32 a, u32 b) { return a > b ? a : b; }
INLINE val add(int L, val a, val b) {
  if (a.literal && !a.linear) return b;
  if (b.literal && !b.linear) return a;
  return (val){most(a.degree, b.degree), least((u64)a.linear + b.linear), a.literal & b.literal};
}
INLINE val sub(int L, val a, val b) { return add(L, a, b); }
INLINE val mul(int L, val a, val b) {
  u32 linear = a.literal || b.literal ? least((u64)a.linear * b.linear) : 1;
  return (val){least((u64)a.degree + b.degree), linear, a.literal & b.literal};
}
INLINE val negate(int L, val a) { return a; }
INLINE val square(int L, val a) { return mul(L, a, a); }
/* A quotient by a sum is an indeterminate of its own, by a monomial it is one more monomial. */
INLINE val divide(int L, val a, val b) { return mul(L, a, (val){b.literal ? 0 : most(b.degree, 1), most(b.linear, 1), b.literal}); }
INLINE val integer(int L, i64 a) { return (val){0, least(a < 0 ? -a : a), 1}; }
INLINE val choose(i64 c, val a, val b) { return c ? a : b; }
INLINE val opaque(val a) { exponents = most(exponents, a.degree); return a.literal ? a : (val){1, 1, 0}; }
static val sqrt_(int L, val a) { return opaque(a); }
static val rsqrt_(int L, val a) { return opaque(a); }
static val log_(int L, int from, val a) { return opaque(a); }
static val sigmoid_(int L, val a) { return opaque(a); }
static val tanh_(int L, val a) { return opaque(a); }
INLINE val exp_(int L, val a) {
  exponents = most(exponents, a.degree);
  return a.literal ? (val){0, 1, 1} : (val){most(a.linear, 1), 1, 0};
}

INLINE val exp2_(int L, val a) { return exp_(L, mul(L + 1, a, LN2[L + 1])); }
static val *new_val(i64 n) { return calloc(n > 0 ? n : 1, sizeof(val)); }
static void record(const val *data, i64 n, int number, int keys, ...) {}

static val LIT[LIT_COUNT + 1];
EXPORT void setup(const u32 *literals) {
  for (int L = 0; L < LEVELS; L++) ONE[L] = LN2[L] = LOG2E[L] = (val){0, 1, 1};
  for (int i = 0; i < LIT_COUNT; i++) LIT[i] = (val){0, literals[i], 1};
  exponents = 0;
}
EXPORT u32 largest_exponent(void) { return exponents; }
