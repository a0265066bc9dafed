// CUDA's mathematical functions that have a meaning in the fields; what is missing here is refused by its name.
#pragma once

#include "../numbers.h"
#include "../vectors.h"

namespace kdsl {
inline F32 applied(Function function, F32 a) { return F32::of(apply(function, a.value())); }
inline F32 flushed(F32 a) { return a; }
}  // namespace kdsl

#define KDSL_FUNCTION(NAME, F) inline kdsl::F32 NAME(kdsl::F32 a) { return kdsl::applied(kdsl::Function::F, a); }
KDSL_FUNCTION(expf, exp) KDSL_FUNCTION(__expf, exp) KDSL_FUNCTION(exp, exp)
KDSL_FUNCTION(exp2f, exp2) KDSL_FUNCTION(__exp2f, exp2) KDSL_FUNCTION(exp2, exp2)
KDSL_FUNCTION(logf, log) KDSL_FUNCTION(__logf, log) KDSL_FUNCTION(log, log) KDSL_FUNCTION(log1pf, log1p)
KDSL_FUNCTION(log2f, log2) KDSL_FUNCTION(__log2f, log2)
KDSL_FUNCTION(sqrtf, sqrt) KDSL_FUNCTION(__fsqrt_rn, sqrt)
KDSL_FUNCTION(rsqrtf, rsqrt) KDSL_FUNCTION(__frsqrt_rn, rsqrt)
KDSL_FUNCTION(tanhf, tanh) KDSL_FUNCTION(fabsf, abs) KDSL_FUNCTION(abs, abs)
#undef KDSL_FUNCTION
inline kdsl::F32 fmaf(kdsl::F32 a, kdsl::F32 b, kdsl::F32 c) { return a * b + c; }
inline kdsl::F32 __fmaf_rn(kdsl::F32 a, kdsl::F32 b, kdsl::F32 c) { return a * b + c; }
inline kdsl::F32 __fdividef(kdsl::F32 a, kdsl::F32 b) { return a / b; }
inline kdsl::F32 __fdiv_rn(kdsl::F32 a, kdsl::F32 b) { return a / b; }
inline kdsl::F32 __frcp_rn(kdsl::F32 a) { return kdsl::F32(1) / a; }
inline kdsl::F32 __fadd_rn(kdsl::F32 a, kdsl::F32 b) { return a + b; }
inline kdsl::F32 __fsub_rn(kdsl::F32 a, kdsl::F32 b) { return a - b; }
inline kdsl::F32 __fmul_rn(kdsl::F32 a, kdsl::F32 b) { return a * b; }
inline kdsl::F32 __int2float_rn(int a) { return kdsl::F32(a); }
// Helpers of every text name these, whether a kernel calls them or not.
#define KDSL_MEANINGLESS(NAME) template <class... A> kdsl::F32 NAME(A...) { kdsl::no_meaning("the function " #NAME); }
KDSL_MEANINGLESS(powf) KDSL_MEANINGLESS(tanf) KDSL_MEANINGLESS(atanf) KDSL_MEANINGLESS(erff) KDSL_MEANINGLESS(erf)
KDSL_MEANINGLESS(sinf) KDSL_MEANINGLESS(cosf)
#undef KDSL_MEANINGLESS
// The one clamp with a meaning is that of softplus: max(x, 0) + log1p(exp(-|x|)) is log(1 + exp(x)).
inline kdsl::F32 max(kdsl::F32 a, kdsl::F32 b) { return kdsl::F32::of(kdsl::larger_cell(a.value(), b.value())); }
inline kdsl::F32 fmaxf(kdsl::F32 a, kdsl::F32 b) { return max(a, b); }
inline kdsl::F32 min(kdsl::F32, kdsl::F32) { kdsl::no_meaning("a clamp of values"); }
inline kdsl::F32 fminf(kdsl::F32, kdsl::F32) { kdsl::no_meaning("a clamp of values"); }
inline int __float_as_int(kdsl::F32) { kdsl::no_meaning("the bits of a value"); }
inline kdsl::U32 __float_as_uint(kdsl::F32 a) { return kdsl::word_of(a); }
inline kdsl::F32 __uint_as_float(kdsl::U32 a) { return kdsl::f32_of_word(a); }

#define KDSL_EXTREMES(T)                                   \
  inline T max(T a, T b) { return a < b ? b : a; }         \
  inline T min(T a, T b) { return b < a ? b : a; }
KDSL_EXTREMES(int) KDSL_EXTREMES(unsigned int) KDSL_EXTREMES(long) KDSL_EXTREMES(unsigned long)
KDSL_EXTREMES(long long) KDSL_EXTREMES(unsigned long long)
#undef KDSL_EXTREMES
inline int abs(int a) { return a < 0 ? -a : a; }
inline int __popc(unsigned a) { return std::popcount(a); }
inline int __clz(int a) { return std::countl_zero(unsigned(a)); }
inline int __ffs(int a) { return a == 0 ? 0 : std::countr_zero(unsigned(a)) + 1; }
