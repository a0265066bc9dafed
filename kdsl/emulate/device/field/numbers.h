// half and nv_bfloat16 of the fields: one cell, and no rounding.
#pragma once

#include "../words.h"

namespace kdsl {
inline float value_of_half_bits(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f));
}
inline Datum number_cell(Datum cell, bool is_half) {
  if (tag_of(cell) == kTail) no_meaning("the lower half of a float32 is used as a value");
  if (tag_of(cell) != kRaw) return cell;
  return literal_cell(is_half ? value_of_half_bits(uint16_t(cell)) : std::bit_cast<float>(cell << 16));
}
inline F32 value_of_bfloat16(U16 bits) { return F32::of(number_cell(bits.cell(), false)); }
inline F32 value_of_half(U16 bits) { return F32::of(number_cell(bits.cell(), true)); }
inline U16 bits_of_bfloat16(F32 value) { return U16::of(value.value()); }
inline U16 bits_of_half(F32 value) { return U16::of(value.value()); }
inline U32 tf32_of(F32 value) { return word_of(F32::of(value.value())); }
inline F32 value_of_tf32(U32 word) { return F32::of(f32_of_word(word).value()); }
}  // namespace kdsl

#define KDSL_NUMBER(T, HALF)                                                    \
  struct T {                                                                    \
    kdsl::Datum cell;                                                            \
    T() = default;                                                              \
    T(kdsl::F32 value) : cell(value.value()) {}                                 \
    template <class N> requires std::is_arithmetic_v<N> T(N value) : T(kdsl::F32(value)) {} \
    operator kdsl::F32() const { return kdsl::F32::of(kdsl::number_cell(cell, HALF)); } \
  };
KDSL_NUMBER(half, true)
KDSL_NUMBER(nv_bfloat16, false)
#undef KDSL_NUMBER
struct alignas(8) half2 { half x, y; };
struct alignas(8) nv_bfloat162 { nv_bfloat16 x, y; };
using __half = half;
using __half2 = half2;
using __nv_bfloat16 = nv_bfloat16;
using __nv_bfloat162 = nv_bfloat162;

#define KDSL_ARITHMETIC(T)                                                     \
  inline T operator+(T a, T b) { return T(kdsl::F32(a) + kdsl::F32(b)); }      \
  inline T operator-(T a, T b) { return T(kdsl::F32(a) - kdsl::F32(b)); }      \
  inline T operator*(T a, T b) { return T(kdsl::F32(a) * kdsl::F32(b)); }      \
  inline T operator/(T a, T b) { return T(kdsl::F32(a) / kdsl::F32(b)); }      \
  inline T operator-(T a) { return T(-kdsl::F32(a)); }                         \
  inline T operator+(T a) { return a; }                                        \
  inline T& operator+=(T& a, T b) { return a = a + b; }                        \
  inline T& operator-=(T& a, T b) { return a = a - b; }                        \
  inline T& operator*=(T& a, T b) { return a = a * b; }                        \
  inline T& operator/=(T& a, T b) { return a = a / b; }                        \
  inline T __hadd(T a, T b) { return a + b; }                                  \
  inline T __hsub(T a, T b) { return a - b; }                                  \
  inline T __hmul(T a, T b) { return a * b; }                                  \
  inline T __hdiv(T a, T b) { return a / b; }                                  \
  inline T __hneg(T a) { return -a; }                                          \
  inline T __hfma(T a, T b, T c) { return a * b + c; }                         \
  inline bool __hlt(T a, T b) { return kdsl::F32(a) < kdsl::F32(b); }          \
  inline bool __hgt(T a, T b) { return kdsl::F32(a) > kdsl::F32(b); }          \
  inline T##2 __hadd2(T##2 a, T##2 b) { return {a.x + b.x, a.y + b.y}; }       \
  inline T##2 __hsub2(T##2 a, T##2 b) { return {a.x - b.x, a.y - b.y}; }       \
  inline T##2 __hmul2(T##2 a, T##2 b) { return {a.x * b.x, a.y * b.y}; }       \
  inline T##2 __hfma2(T##2 a, T##2 b, T##2 c) { return {a.x * b.x + c.x, a.y * b.y + c.y}; } \
  inline T __low2##T(T##2 a) { return a.x; }                                   \
  inline T __high2##T(T##2 a) { return a.y; }                                  \
  inline kdsl::F32 __low2float(T##2 a) { return a.x; }                         \
  inline kdsl::F32 __high2float(T##2 a) { return a.y; }
KDSL_ARITHMETIC(half)
KDSL_ARITHMETIC(nv_bfloat16)
#undef KDSL_ARITHMETIC

inline kdsl::F32 __half2float(half a) { return a; }
inline half __float2half(kdsl::F32 a) { return a; }
inline half __float2half_rn(kdsl::F32 a) { return a; }
inline half2 make_half2(half a, half b) { return {a, b}; }
inline half2 __halves2half2(half a, half b) { return {a, b}; }
inline half2 __floats2half2_rn(kdsl::F32 a, kdsl::F32 b) { return {a, b}; }
inline unsigned short __half_as_ushort(half) { kdsl::no_meaning("the bits of a value"); }
inline kdsl::F32 __bfloat162float(nv_bfloat16 a) { return a; }
inline nv_bfloat16 __float2bfloat16(kdsl::F32 a) { return a; }
inline nv_bfloat16 __float2bfloat16_rn(kdsl::F32 a) { return a; }
inline nv_bfloat162 make_bfloat162(nv_bfloat16 a, nv_bfloat16 b) { return {a, b}; }
inline nv_bfloat162 __halves2bfloat162(nv_bfloat16 a, nv_bfloat16 b) { return {a, b}; }
inline nv_bfloat162 __floats2bfloat162_rn(kdsl::F32 a, kdsl::F32 b) { return {a, b}; }
inline nv_bfloat162 __float2bfloat162_rn(kdsl::F32 a) { return {a, a}; }
inline nv_bfloat162 __bfloat162bfloat162(nv_bfloat16 a) { return {a, a}; }
inline kdsl::U16 __bfloat16_as_ushort(nv_bfloat16 a) { return kdsl::U16::of(a.cell); }
inline nv_bfloat16 __ushort_as_bfloat16(kdsl::U16 bits) { nv_bfloat16 r; r.cell = bits.cell(); return r; }
