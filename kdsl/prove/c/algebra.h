/* The operations of a program's text: over the fields, or over degrees. */
static int degrees;
val ONE[LEVELS], LN2[LEVELS], LOG2E[LEVELS], *literal_values;

#define ONE_OF(field, degree) return degrees ? of_word(degree) : field
val add(int L, val a, val b) { ONE_OF(field_add(L, a, b), degree_add(word(a), word(b))); }
val sub(int L, val a, val b) { ONE_OF(field_sub(L, a, b), degree_add(word(a), word(b))); }
val mul(int L, val a, val b) { ONE_OF(field_mul(L, a, b), degree_mul(word(a), word(b))); }
val divide(int L, val a, val b) { ONE_OF(field_divide(L, a, b), degree_divide(word(a), word(b))); }
val negate(int L, val a) { ONE_OF(field_negate(L, a), word(a)); }
val square(int L, val a) { return mul(L, a, a); }
val integer(int L, i64 a) { ONE_OF(field_integer(L, a), degree_integer(a)); }
val sqrt_(int L, val a) { ONE_OF(field_sqrt(L, a), opaque(word(a))); }
val rsqrt_(int L, val a) { ONE_OF(field_rsqrt(L, a), opaque(word(a))); }
val log_(int L, int from, val a) { ONE_OF(field_log(L, from, a), opaque(word(a))); }
val exp_(int L, val a) { ONE_OF(field_exp(L, a), degree_exp(word(a))); }
val exp2_(int L, val a) { return exp_(L, mul(L + 1, a, LN2[L + 1])); }
val sigmoid_(int L, val a) { ONE_OF(field_sigmoid(L, a), opaque(word(a))); }
val tanh_(int L, val a) { ONE_OF(field_tanh(L, a), opaque(word(a))); }

static val *room[3];
static i64 rooms[3];
val *tile(int which, i64 n) {
  if (rooms[which] < n) {
    free(room[which]);
    room[which] = malloc(sizeof(val) * n);
    rooms[which] = n;
  }
  return room[which];
}
void multiply(int L, i64 m, i64 n, i64 k, const val *x, const val *y, val *sums) {
  if (degrees) degree_multiply(m, n, k, x, y, sums);
  else field_multiply(L, m, n, k, x, y, sums);
}

val *new_val(i64 n) { return calloc(n > 0 ? n : 1, sizeof(val)); }
void record(const val *data, i64 n, int number, int keys, ...) { /* of the first trial, as Python has elements */
  va_list list;
  trace_put(number); trace_put(keys); trace_put(n);
  va_start(list, keys);
  for (int i = 0; i < keys; i++) trace_put(va_arg(list, i64));
  va_end(list);
  for (i64 i = 0; i < n; i++) trace_put(data[i][0] ^ WRITTEN);
}

static void room_for_literals(int count) {
  free(literal_values);
  literal_values = malloc(sizeof(val) * (count + 1));
}

EXPORT void setup_degree(int count, const u32 *literals) {
  degrees = 1; exponents = 0;
  for (int L = 0; L < LEVELS; L++) ONE[L] = LN2[L] = LOG2E[L] = of_word(degree(0, 1, LITERAL));
  room_for_literals(count);
  for (int i = 0; i < count; i++) literal_values[i] = of_word(degree(0, literals[i], LITERAL));
}
EXPORT u32 largest_exponent(void) { return exponents; }

/* primes, roots, ln 2 and its inverses by level, literals in plain form with their levels: of each the trials' numbers in
   a row */
EXPORT void setup_field(int depth, const val *p, const val *w, const val *ln2, const val *log2e, const u64 *s, int count,
                        const int *levels, const val *literals) {
  degrees = 0;
  memcpy(salt, s, sizeof salt);
  for (int L = 0; L < depth; L++) {
    val x = (val){} + 1;
    for (int i = 0; i < 5; i++) x *= 2 - p[L] * x; /* Newton: 1/p mod 2^32 */
    F[L].p = p[L]; F[L].inverse = -x;
    for (int t = 0; t < WIDTH; t++) {
      u64 r = ((u64)1 << 32) % p[L][t];
      F[L].square[t] = r * r % p[L][t];
    }
    ONE[L] = enter(L, (val){} + (1 | WRITTEN)); LN2[L] = enter(L, ln2[L] | WRITTEN); LOG2E[L] = enter(L, log2e[L] | WRITTEN);
  }
  for (int L = 0; L + 1 < depth; L++) {
    val power = enter(L, w[L]);
    for (int i = 0; i < 3; i++) {
      val entry = ONE[L] & BITS;
      for (int j = 0; j < 2048; j++, entry = times(L, entry, power))
        for (int t = 0; t < WIDTH; t++) TABLE[L][i][t][j] = entry[t];
      power = entry;
    }
  }
  room_for_literals(count);
  for (int i = 0; i < count; i++) literal_values[i] = enter(levels[i], literals[i] | WRITTEN);
}
/* From and to elements as Python has them: bit 31 marks what is unwritten. */
EXPORT void to_field(int L, val *x, i64 n) { for (i64 i = 0; i < n; i++) x[i] = enter(L, x[i] ^ WRITTEN); }
EXPORT void from_field(int L, val *x, i64 n) { for (i64 i = 0; i < n; i++) x[i] = plain(L, x[i]) | (~x[i] & WRITTEN); }
