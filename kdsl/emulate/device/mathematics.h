// CUDA's mathematical functions, each by the C library's. Approximate ones (`__expf`, `ex2.approx`) are computed
// exactly here: their errors on a device are far below the tolerance of every comparison, and differ by device.
#pragma once

#ifdef KDSL_FIELD
#include "field/mathematics.h"
#else
#include "numbers.h"
#include "vectors.h"

// Declared one by one: <cmath> has names such as `__expf` of its own.
#define KDSL_UNARY(F) extern "C" float F##f(float) noexcept; extern "C" double F(double) noexcept;
KDSL_UNARY(exp) KDSL_UNARY(exp2) KDSL_UNARY(expm1) KDSL_UNARY(log) KDSL_UNARY(log2) KDSL_UNARY(log10)
KDSL_UNARY(log1p) KDSL_UNARY(sqrt) KDSL_UNARY(cbrt) KDSL_UNARY(sin) KDSL_UNARY(cos) KDSL_UNARY(tan)
KDSL_UNARY(asin) KDSL_UNARY(acos) KDSL_UNARY(atan) KDSL_UNARY(sinh) KDSL_UNARY(cosh) KDSL_UNARY(tanh)
KDSL_UNARY(erf) KDSL_UNARY(floor) KDSL_UNARY(ceil) KDSL_UNARY(trunc) KDSL_UNARY(round) KDSL_UNARY(rint)
KDSL_UNARY(nearbyint) KDSL_UNARY(fabs)
#undef KDSL_UNARY
#define KDSL_BINARY(F) extern "C" float F##f(float, float) noexcept; extern "C" double F(double, double) noexcept;
KDSL_BINARY(pow) KDSL_BINARY(fmod) KDSL_BINARY(atan2) KDSL_BINARY(copysign) KDSL_BINARY(fmax) KDSL_BINARY(fmin)
KDSL_BINARY(hypot)
#undef KDSL_BINARY
extern "C" float ldexpf(float, int) noexcept;
extern "C" float fmaf(float, float, float) noexcept;
extern "C" double fma(double, double, double) noexcept;

namespace kdsl {
inline float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }
}  // namespace kdsl

inline float rsqrtf(float x) { return float(1.0 / __builtin_sqrt(double(x))); }
inline double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
inline float exp10f(float x) { return powf(10.0f, x); }
inline float __expf(float x) { return expf(x); }
inline float __exp2f(float x) { return exp2f(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __saturatef(float x) { return x != x ? 0.0f : x < 0 ? 0.0f : x > 1 ? 1.0f : x; }

// As on the device, the result is the operand that is a number if one of them is not.
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
#define KDSL_EXTREMES(T)                                   \
  inline T max(T a, T b) { return a < b ? b : a; }         \
  inline T min(T a, T b) { return b < a ? b : a; }
KDSL_EXTREMES(int) KDSL_EXTREMES(unsigned int) KDSL_EXTREMES(long) KDSL_EXTREMES(unsigned long)
KDSL_EXTREMES(long long) KDSL_EXTREMES(unsigned long long)
#undef KDSL_EXTREMES
inline int abs(int a) { return a < 0 ? -a : a; }
inline float abs(float a) { return fabsf(a); }
inline bool isnan(float a) { return a != a; }
inline bool isinf(float a) { return fabsf(a) > 0x1.fffffep127f; }
inline bool isfinite(float a) { return fabsf(a) <= 0x1.fffffep127f; }

inline int __float_as_int(float a) { return std::bit_cast<int>(a); }
inline unsigned __float_as_uint(float a) { return std::bit_cast<unsigned>(a); }
inline float __int_as_float(int a) { return std::bit_cast<float>(a); }
inline float __uint_as_float(unsigned a) { return std::bit_cast<float>(a); }
inline int __popc(unsigned a) { return std::popcount(a); }
inline int __clz(int a) { return std::countl_zero(unsigned(a)); }
inline int __ffs(int a) { return a == 0 ? 0 : std::countr_zero(unsigned(a)) + 1; }
inline int __float2int_rn(float a) { return int(rintf(a)); }
inline float __int2float_rn(int a) { return float(a); }

#define KDSL_HALF_FUNCTION(NAME, F)                                      \
  inline half NAME(half a) { return half(F(float(a))); }                 \
  inline nv_bfloat16 NAME(nv_bfloat16 a) { return nv_bfloat16(F(float(a))); }
KDSL_HALF_FUNCTION(hexp, expf) KDSL_HALF_FUNCTION(hexp2, exp2f) KDSL_HALF_FUNCTION(hlog, logf)
KDSL_HALF_FUNCTION(hlog2, log2f) KDSL_HALF_FUNCTION(hsqrt, sqrtf) KDSL_HALF_FUNCTION(hrsqrt, rsqrtf)
KDSL_HALF_FUNCTION(hsin, sinf) KDSL_HALF_FUNCTION(hcos, cosf) KDSL_HALF_FUNCTION(htanh, tanhf)
KDSL_HALF_FUNCTION(hfloor, floorf) KDSL_HALF_FUNCTION(hceil, ceilf) KDSL_HALF_FUNCTION(htrunc, truncf)
KDSL_HALF_FUNCTION(hrint, rintf)
#undef KDSL_HALF_FUNCTION
#endif
