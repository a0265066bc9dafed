// CUDA's short vectors, with the sizes and alignments of the CUDA programming guide, and conversions of pairs.
#pragma once

#include <type_traits>

#include "numbers.h"

namespace kdsl {
// Bytes here for each byte of a number of type T on the device: cells take more, the machine's own numbers do not.
template <class T> inline constexpr unsigned kWords = std::is_arithmetic_v<T> ? 1 : kScale;
}  // namespace kdsl

#define KDSL_VECTORS(T, NAME, A1, A2, A4)                                                             \
  struct alignas(A1 * kdsl::kWords<T>) NAME##1 { T x; };                                              \
  struct alignas(A2 * kdsl::kWords<T>) NAME##2 { T x, y; };                                           \
  struct NAME##3 { T x, y, z; };                                                                      \
  struct alignas(A4 * kdsl::kWords<T>) NAME##4 { T x, y, z, w; };                                     \
  inline NAME##1 make_##NAME##1(T x) { return {x}; }                                                  \
  inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }                                          \
  inline NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; }                                  \
  inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }

KDSL_VECTORS(signed char, char, 1, 2, 4)
KDSL_VECTORS(unsigned char, uchar, 1, 2, 4)
KDSL_VECTORS(short, short, 2, 4, 8)
KDSL_VECTORS(kdsl::u16, ushort, 2, 4, 8)
KDSL_VECTORS(int, int, 4, 8, 16)
KDSL_VECTORS(kdsl::u32, uint, 4, 8, 16)
KDSL_VECTORS(kdsl::f32, float, 4, 8, 16)
KDSL_VECTORS(long long, longlong, 8, 16, 16)
KDSL_VECTORS(unsigned long long, ulonglong, 8, 16, 16)
KDSL_VECTORS(double, double, 8, 16, 16)
#undef KDSL_VECTORS

struct dim3 { unsigned x, y, z; };
using uchar = unsigned char;
using ushort = kdsl::u16;
using uint = kdsl::u32;

inline float2 __half22float2(half2 a) { return {a.x, a.y}; }
inline half2 __float22half2_rn(float2 a) { return {a.x, a.y}; }
inline float2 __bfloat1622float2(nv_bfloat162 a) { return {a.x, a.y}; }
inline nv_bfloat162 __float22bfloat162_rn(float2 a) { return {a.x, a.y}; }
