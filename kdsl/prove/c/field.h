/* Field elements in Montgomery form (Montgomery 1985), below 2^31; bit 31: fed by something never written. */
typedef u32 val;
#define TAINT 0x80000000u
#define BITS 0x7fffffffu

static struct { u32 p, inverse, square; } F[LEVELS]; /* p; -1/p mod 2^32; 2^64 mod p */
static u64 salt;
static val ONE[LEVELS], LN2[LEVELS], LOG2E[LEVELS], TABLE[LEVELS][3][2048];

INLINE u32 reduce(int L, u64 x) {
  u32 y = (x + (u64)((u32)x * F[L].inverse) * F[L].p) >> 32;
  return y >= F[L].p ? y - F[L].p : y;
}
INLINE val enter(int L, u32 x) { return reduce(L, (u64)(x & BITS) * F[L].square) | (x & TAINT); }
INLINE u32 plain(int L, val x) { return reduce(L, x & BITS); }

INLINE val add(int L, val a, val b) {
  u32 t = (a | b) & TAINT, s = (a & BITS) + (b & BITS);
  return (s >= F[L].p ? s - F[L].p : s) | t;
}
INLINE val sub(int L, val a, val b) {
  u32 t = (a | b) & TAINT;
  a &= BITS; b &= BITS;
  return (a >= b ? a - b : a + F[L].p - b) | t;
}
INLINE val mul(int L, val a, val b) { return reduce(L, (u64)(a & BITS) * (b & BITS)) | ((a | b) & TAINT); }
INLINE val negate(int L, val a) { return sub(L, 0, a); }
INLINE val square(int L, val a) { return mul(L, a, a); }
static val inverse_(int L, val a) {
  val r = ONE[L];
  if (!(a & BITS) && !fault) fault = 2;
  for (u32 e = F[L].p - 2; e; e >>= 1, a = mul(L, a, a)) if (e & 1) r = mul(L, r, a);
  return r | (a & TAINT);
}
INLINE val divide(int L, val a, val b) { return mul(L, a, inverse_(L, b)); }
INLINE val integer(int L, i64 a) { return enter(L, (u32)floormod(a, F[L].p)); }
INLINE val choose(i64 c, val a, val b) { return c ? a : b; }

INLINE val random_(int L, u64 tag, int from, val a) {
  u64 z = ((u64)plain(from, a) << 8 | tag) + salt;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  z ^= z >> 31;
  return enter(L, (u32)(z % (F[L].p - 1) + 1)) | (a & TAINT);
}
static val sqrt_(int L, val a) { return random_(L, L * 9, L, a); }
static val log_(int L, int from, val a) { return random_(L, 64 + from * 8 + L, from, a); }
static val rsqrt_(int L, val a) { return inverse_(L, sqrt_(L, a)); }
INLINE val exp_(int L, val a) {
  u32 x = plain(L + 1, a);
  val(*t)[2048] = TABLE[L];
  return mul(L, mul(L, t[0][x & 2047], t[1][x >> 11 & 2047]), t[2][x >> 22]) | (a & TAINT);
}
INLINE val exp2_(int L, val a) { return exp_(L, mul(L + 1, a, LN2[L + 1])); }
static val sigmoid_(int L, val a) { return inverse_(L, add(L, ONE[L], exp_(L, negate(L + 1, a)))); }
static val tanh_(int L, val a) {
  val e = exp_(L, add(L + 1, a, a));
  return divide(L, sub(L, e, ONE[L]), add(L, e, ONE[L]));
}

static val *new_val(i64 n) {
  val *p = malloc(4 * (n > 0 ? n : 1));
  for (i64 i = 0; i < n; i++) p[i] = TAINT | 12345;
  return p;
}
static void record(const val *data, i64 n, int number, int keys, ...) {
  va_list list;
  trace_put(number); trace_put(keys); trace_put(n);
  va_start(list, keys);
  for (int i = 0; i < keys; i++) trace_put(va_arg(list, i64));
  va_end(list);
  for (i64 i = 0; i < n; i++) trace_put(data[i]);
}

static val LIT[LIT_COUNT + 1];
/* primes, roots, ln 2 and its inverses, literals in plain form */
EXPORT void setup(int depth, const u32 *p, const u32 *w, const u32 *ln2, const u32 *log2e, u64 s, const u32 *literals) {
  salt = s;
  for (int L = 0; L < depth; L++) {
    u32 x = 1;
    for (int i = 0; i < 5; i++) x *= 2 - p[L] * x; /* Newton: 1/p mod 2^32 */
    u64 r = ((u64)1 << 32) % p[L];
    F[L].p = p[L]; F[L].inverse = -x; F[L].square = (u32)(r * r % p[L]);
    ONE[L] = enter(L, 1); LN2[L] = enter(L, ln2[L]); LOG2E[L] = enter(L, log2e[L]);
  }
  for (int L = 0; L + 1 < depth; L++) {
    val power = enter(L, w[L]);
    for (int i = 0; i < 3; i++) {
      val *t = TABLE[L][i];
      t[0] = ONE[L];
      for (int j = 1; j < 2048; j++) t[j] = mul(L, t[j - 1], power);
      power = mul(L, t[2047], power);
    }
  }
  for (int i = 0; i < LIT_COUNT; i++) LIT[i] = enter(LIT_LEVEL[i], literals[i]);
}
EXPORT void to_field(int L, u32 *x, i64 n) { for (i64 i = 0; i < n; i++) x[i] = enter(L, x[i]); }
EXPORT void from_field(int L, u32 *x, i64 n) { for (i64 i = 0; i < n; i++) x[i] = plain(L, x[i]) | (x[i] & TAINT); }
