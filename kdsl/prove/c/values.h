/* What the text of a program may do with a value. A value is what `field.h` makes of it, or `degree.h`, as the program
   was set up last: one compiled text runs over both. */
#define WIDTH 4
typedef u32 val __attribute__((vector_size(4 * WIDTH), aligned(4)));

extern val ONE[LEVELS], LN2[LEVELS], LOG2E[LEVELS], *literal_values;

val add(int L, val a, val b);
val sub(int L, val a, val b);
val mul(int L, val a, val b);
val divide(int L, val a, val b);
val negate(int L, val a);
val square(int L, val a);
val integer(int L, i64 a);
val sqrt_(int L, val a);
val rsqrt_(int L, val a);
val log_(int L, int from, val a);
val exp_(int L, val a);
val exp2_(int L, val a);
val sigmoid_(int L, val a);
val tanh_(int L, val a);
static inline val choose(i64 c, val a, val b) { return c ? a : b; }

val *new_val(i64 n); /* never written */
void record(const val *data, i64 n, int number, int keys, ...);
/* Room for an operand of a product, or its sums, which the next product takes over. */
val *tile(int which, i64 n);
/* sums[i * n + j] is the sum over t < k of x[i * k + t] y[t * n + j]. */
void multiply(int L, i64 m, i64 n, i64 k, const val *x, const val *y, val *sums);
