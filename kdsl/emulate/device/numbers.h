// half and nv_bfloat16: storage, conversions and arithmetic, each operation in float32 and rounded once, to nearest
// even. For +, -, *, / this equals the correctly rounded result, since 24 >= 2 * 11 + 2.
#pragma once

#include "words.h"

#ifdef KDSL_FIELD
#include "field/numbers.h"
#else
namespace kdsl {

inline float value_of_half(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f));
}

inline uint16_t bits_of_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7fff;
  if (magnitude >= 0x477ff000) return uint16_t(sign | 0x7c00);
  if (magnitude < 0x38800000) {  // below 2^-14: the unit of 0.5f is that of half's subnormals, so the sum rounds
    return uint16_t(sign | (std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000));
  }
  return uint16_t(sign | (magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13);
}

inline float value_of_bfloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

inline uint16_t bits_of_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline uint32_t tf32_of(float value) { return (std::bit_cast<uint32_t>(value) + 0x1000) & 0xffffe000; }
inline float value_of_tf32(uint32_t word) { return std::bit_cast<float>(word & 0xffffe000); }

}  // namespace kdsl

struct half {
  uint16_t bits;
  half() = default;
  half(float value) : bits(kdsl::bits_of_half(value)) {}
  operator float() const { return kdsl::value_of_half(bits); }
};
struct nv_bfloat16 {
  uint16_t bits;
  nv_bfloat16() = default;
  nv_bfloat16(float value) : bits(kdsl::bits_of_bfloat16(value)) {}
  operator float() const { return kdsl::value_of_bfloat16(bits); }
};
struct alignas(4) half2 { half x, y; };
struct alignas(4) nv_bfloat162 { nv_bfloat16 x, y; };
using __half = half;
using __half2 = half2;
using __nv_bfloat16 = nv_bfloat16;
using __nv_bfloat162 = nv_bfloat162;

#define KDSL_ARITHMETIC(T)                                                     \
  inline T operator+(T a, T b) { return T(float(a) + float(b)); }              \
  inline T operator-(T a, T b) { return T(float(a) - float(b)); }              \
  inline T operator*(T a, T b) { return T(float(a) * float(b)); }              \
  inline T operator/(T a, T b) { return T(float(a) / float(b)); }              \
  inline T operator-(T a) { T r; r.bits = a.bits ^ 0x8000; return r; }         \
  inline T operator+(T a) { return a; }                                        \
  inline T& operator+=(T& a, T b) { return a = a + b; }                        \
  inline T& operator-=(T& a, T b) { return a = a - b; }                        \
  inline T& operator*=(T& a, T b) { return a = a * b; }                        \
  inline T& operator/=(T& a, T b) { return a = a / b; }                        \
  inline bool operator<(T a, T b) { return float(a) < float(b); }              \
  inline bool operator>(T a, T b) { return float(a) > float(b); }              \
  inline bool operator<=(T a, T b) { return float(a) <= float(b); }            \
  inline bool operator>=(T a, T b) { return float(a) >= float(b); }            \
  inline bool operator==(T a, T b) { return float(a) == float(b); }            \
  inline bool operator!=(T a, T b) { return float(a) != float(b); }            \
  inline T __hadd(T a, T b) { return a + b; }                                  \
  inline T __hsub(T a, T b) { return a - b; }                                  \
  inline T __hmul(T a, T b) { return a * b; }                                  \
  inline T __hdiv(T a, T b) { return a / b; }                                  \
  inline T __hneg(T a) { return -a; }                                          \
  inline T __habs(T a) { T r; r.bits = a.bits & 0x7fff; return r; }            \
  inline T __hfma(T a, T b, T c) { return T(float(double(a) * double(b) + double(c))); } \
  inline T __hmax(T a, T b) { return float(a) != float(a) || a < b ? b : a; }  \
  inline T __hmin(T a, T b) { return float(a) != float(a) || a > b ? b : a; }  \
  inline bool __hlt(T a, T b) { return a < b; }                                \
  inline bool __hgt(T a, T b) { return a > b; }                                \
  inline bool __hle(T a, T b) { return a <= b; }                               \
  inline bool __hge(T a, T b) { return a >= b; }                               \
  inline bool __heq(T a, T b) { return a == b; }                               \
  inline bool __hne(T a, T b) { return a != b; }                               \
  inline bool __hisnan(T a) { return float(a) != float(a); }                   \
  inline T##2 __hadd2(T##2 a, T##2 b) { return {a.x + b.x, a.y + b.y}; }       \
  inline T##2 __hsub2(T##2 a, T##2 b) { return {a.x - b.x, a.y - b.y}; }       \
  inline T##2 __hmul2(T##2 a, T##2 b) { return {a.x * b.x, a.y * b.y}; }       \
  inline T##2 __hfma2(T##2 a, T##2 b, T##2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; } \
  inline T __low2##T(T##2 a) { return a.x; }                                   \
  inline T __high2##T(T##2 a) { return a.y; }                                  \
  inline float __low2float(T##2 a) { return a.x; }                             \
  inline float __high2float(T##2 a) { return a.y; }

KDSL_ARITHMETIC(half)
KDSL_ARITHMETIC(nv_bfloat16)
#undef KDSL_ARITHMETIC

inline float __half2float(half a) { return a; }
inline half __float2half(float a) { return a; }
inline half __float2half_rn(float a) { return a; }
inline half2 make_half2(half a, half b) { return {a, b}; }
inline half2 __halves2half2(half a, half b) { return {a, b}; }
inline half2 __floats2half2_rn(float a, float b) { return {a, b}; }
inline half2 __float2half2_rn(float a) { return {a, a}; }
inline half2 __half2half2(half a) { return {a, a}; }
inline unsigned short __half_as_ushort(half a) { return a.bits; }
inline half __ushort_as_half(unsigned short bits) { half r; r.bits = bits; return r; }

inline float __bfloat162float(nv_bfloat16 a) { return a; }
inline nv_bfloat16 __float2bfloat16(float a) { return a; }
inline nv_bfloat16 __float2bfloat16_rn(float a) { return a; }
inline nv_bfloat162 make_bfloat162(nv_bfloat16 a, nv_bfloat16 b) { return {a, b}; }
inline nv_bfloat162 __halves2bfloat162(nv_bfloat16 a, nv_bfloat16 b) { return {a, b}; }
inline nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {a, b}; }
inline nv_bfloat162 __float2bfloat162_rn(float a) { return {a, a}; }
inline nv_bfloat162 __bfloat162bfloat162(nv_bfloat16 a) { return {a, a}; }
inline unsigned short __bfloat16_as_ushort(nv_bfloat16 a) { return a.bits; }
inline nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { nv_bfloat16 r; r.bits = bits; return r; }
#endif
