// CUDA's short vectors, with the sizes and alignments of the CUDA programming guide, and conversions of pairs.
#pragma once

#include "numbers.h"

#define KDSL_VECTORS(T, NAME, A1, A2, A4)                                                             \
  struct alignas(A1) NAME##1 { T x; };                                                                \
  struct alignas(A2) NAME##2 { T x, y; };                                                             \
  struct NAME##3 { T x, y, z; };                                                                      \
  struct alignas(A4) NAME##4 { T x, y, z, w; };                                                       \
  inline NAME##1 make_##NAME##1(T x) { return {x}; }                                                  \
  inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }                                          \
  inline NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; }                                  \
  inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }

KDSL_VECTORS(signed char, char, 1, 2, 4)
KDSL_VECTORS(unsigned char, uchar, 1, 2, 4)
KDSL_VECTORS(short, short, 2, 4, 8)
KDSL_VECTORS(unsigned short, ushort, 2, 4, 8)
KDSL_VECTORS(int, int, 4, 8, 16)
KDSL_VECTORS(unsigned int, uint, 4, 8, 16)
KDSL_VECTORS(float, float, 4, 8, 16)
KDSL_VECTORS(long long, longlong, 8, 16, 16)
KDSL_VECTORS(unsigned long long, ulonglong, 8, 16, 16)
KDSL_VECTORS(double, double, 8, 16, 16)
#undef KDSL_VECTORS

using dim3 = uint3;
using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;

inline float2 __half22float2(half2 a) { return {a.x, a.y}; }
inline half2 __float22half2_rn(float2 a) { return {a.x, a.y}; }
inline float2 __bfloat1622float2(nv_bfloat162 a) { return {a.x, a.y}; }
inline nv_bfloat162 __float22bfloat162_rn(float2 a) { return {a.x, a.y}; }
