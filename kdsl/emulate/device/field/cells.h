// Two bytes of the device are one cell of four here, which says what it holds: two plain bytes, an element of a prime
// field and its level (see kdsl/prove/fields.py), a constant, or the lower half of a float32 whose upper half says
// what it is. So a bfloat16 is one cell and a float32 two; copies, shuffles, swizzles and packing move cells as they
// move bytes on the device, and unpacking by shifts and masks gives the value that it gives there. Rounding is left
// out: a conversion between floats changes nothing.
#pragma once

#include <concepts>
#include <cstring>
#include <type_traits>

namespace kdsl {

constexpr unsigned kScale = 2;
using Datum = uint32_t;  // the tag in the upper four bits, what it tells of below

enum Tag : unsigned { kRaw = 0, kLevel0 = 1, kLiteral = 6, kSymbolic = 7, kTail = 8, kUnwritten = 15 };
constexpr unsigned kTagShift = 28, kLevels = 5;
constexpr Datum kPayload = (1u << kTagShift) - 1, kPoison = 0xffffffff, kTailCell = Datum(kTail) << kTagShift;

inline unsigned tag_of(Datum c) { return c >> kTagShift; }
inline bool is_element(Datum c) { return tag_of(c) - kLevel0 < kLevels; }

struct Field {
  uint32_t prime[8];  // by tag
  bool degrees;       // cells hold degrees of polynomials instead of elements
};
extern KDSL_INTERFACE Field field;

[[noreturn]] KDSL_INTERFACE void no_meaning(const char* what);  // ends the run: the fields cannot express it
KDSL_INTERFACE Datum literal_cell(double value);
KDSL_INTERFACE Datum add_cells(Datum a, Datum b);
KDSL_INTERFACE Datum multiply_cells(Datum a, Datum b);
KDSL_INTERFACE Datum divide_cells(Datum a, Datum b);
KDSL_INTERFACE Datum negate_cell(Datum a);
enum class Function { exp, exp2, log, log1p, log2, sqrt, rsqrt, tanh, abs };
KDSL_INTERFACE Datum apply(Function function, Datum a);
KDSL_INTERFACE Datum larger_cell(Datum a, Datum b);
KDSL_INTERFACE void check_settled(Datum tail);  // of a register that an asynchronous product writes

inline Datum add_quickly(Datum a, Datum b) {
  if (tag_of(a) != tag_of(b) || !is_element(a) || field.degrees) [[unlikely]] return add_cells(a, b);
  const uint32_t p = field.prime[tag_of(a)], sum = (a & kPayload) + (b & kPayload);
  return (a & ~kPayload) | (sum >= p ? sum - p : sum);
}
inline Datum multiply_quickly(Datum a, Datum b) {
  if (tag_of(a) != tag_of(b) || !is_element(a) || field.degrees) [[unlikely]] return multiply_cells(a, b);
  return (a & ~kPayload) | uint32_t(uint64_t(a & kPayload) * (b & kPayload) % field.prime[tag_of(a)]);
}

class F32;

// 16 bits: an integer, or a bfloat16 on its way.
class U16 {
 public:
  U16() = default;
  template <std::integral I> U16(I bits) : cell_(uint16_t(bits)) {}
  static U16 of(Datum cell) { U16 r; r.cell_ = cell; return r; }
  Datum cell() const { return cell_; }
  operator uint16_t() const {
    if (tag_of(cell_) != kRaw) no_meaning("a value becomes an integer");
    return uint16_t(cell_);
  }

 private:
  Datum cell_;
};

// 32 bits: an integer or address, a float32, or a pair of bfloat16.
class U32 {
 public:
  U32() = default;
  template <std::integral I> U32(I bits) : low_(uint32_t(bits) & 0xffff), high_(uint32_t(bits) >> 16) {}
  U32(U16 half) : low_(half.cell()), high_(0) {}
  template <class R>
    requires requires(const R& r) { r.get(); }
  U32(const R& reference) : U32(reference.get()) {}
  static U32 of(Datum low, Datum high) { U32 r; r.low_ = low, r.high_ = high; return r; }
  Datum low() const { return low_; }
  Datum high() const { return high_; }
  bool plain() const { return tag_of(low_) == kRaw && tag_of(high_) == kRaw; }
  operator uint32_t() const {
    if (!plain()) no_meaning("a value becomes an integer");
    return low_ | high_ << 16;
  }
  explicit operator U16() const { return U16::of(low_); }

 private:
  Datum low_, high_;
};

inline U32 shifted_left(U32 a, unsigned n) {
  if (a.plain()) return U32(n < 32 ? uint32_t(a) << n : 0);
  if (n == 0) return a;
  if (n != 16) no_meaning("bits of a value are moved");
  return U32::of(0, a.low());
}
inline U32 shifted_right(U32 a, unsigned n) {
  if (a.plain()) return U32(n < 32 ? uint32_t(a) >> n : 0);
  if (n == 0) return a;
  if (n != 16) no_meaning("bits of a value are moved");
  return U32::of(a.high(), 0);
}
inline Datum masked(Datum a, Datum mask) {
  if (tag_of(a) == kRaw) return a & mask;
  if (mask == 0xffff) return a;
  if (mask != 0) no_meaning("bits of a value are looked at");
  return 0;
}
inline U32 both(U32 a, U32 b) {
  if (!b.plain()) { const U32 t = a; a = b, b = t; }
  if (!b.plain()) no_meaning("bits of a value are looked at");
  return U32::of(masked(a.low(), b.low()), masked(a.high(), b.high()));
}
inline Datum united(Datum a, Datum b) {
  if (tag_of(a) == kRaw && tag_of(b) == kRaw) return a | b;
  if (a != 0 && b != 0) no_meaning("bits of values are mixed");
  return a == 0 ? b : a;
}
inline U32 either(U32 a, U32 b) { return U32::of(united(a.low(), b.low()), united(a.high(), b.high())); }

#define KDSL_BITS(OP, F)                                                             \
  inline U32 operator OP(U32 a, U32 b) { return F(a, b); }                           \
  template <std::integral I> U32 operator OP(U32 a, I b) { return F(a, U32(b)); }    \
  template <std::integral I> U32 operator OP(I a, U32 b) { return F(U32(a), b); }
KDSL_BITS(&, both) KDSL_BITS(|, either)
#undef KDSL_BITS
// Everything else takes plain integers.
#define KDSL_PLAIN(R, OP)                                                                                 \
  inline R operator OP(U32 a, U32 b) { return R(uint32_t(a) OP uint32_t(b)); }                            \
  template <std::integral I> R operator OP(U32 a, I b) { return R(uint32_t(a) OP uint32_t(b)); }          \
  template <std::integral I> R operator OP(I a, U32 b) { return R(uint32_t(a) OP uint32_t(b)); }
KDSL_PLAIN(U32, +) KDSL_PLAIN(U32, -) KDSL_PLAIN(U32, *) KDSL_PLAIN(U32, /) KDSL_PLAIN(U32, %) KDSL_PLAIN(U32, ^)
KDSL_PLAIN(bool, ==) KDSL_PLAIN(bool, !=) KDSL_PLAIN(bool, <) KDSL_PLAIN(bool, >) KDSL_PLAIN(bool, <=) KDSL_PLAIN(bool, >=)
#undef KDSL_PLAIN
template <std::integral I> U32 operator<<(U32 a, I n) { return shifted_left(a, unsigned(n)); }
template <std::integral I> U32 operator>>(U32 a, I n) { return shifted_right(a, unsigned(n)); }
inline U32 operator<<(U32 a, U32 n) { return shifted_left(a, uint32_t(n)); }
inline U32 operator>>(U32 a, U32 n) { return shifted_right(a, uint32_t(n)); }
inline U32& operator|=(U32& a, U32 b) { return a = a | b; }
inline U32& operator&=(U32& a, U32 b) { return a = a & b; }
inline U32 operator<<(U16 a, int n) { return U32(a) << n; }

// A float32. Its upper cell says what it is; under one that holds a value the lower cell is a tail, which names the
// asynchronous product that may still write the register, or zero where the value was a bfloat16.
class F32 {
 public:
  F32() = default;
  template <std::floating_point T> F32(T value) : F32(of(literal_cell(double(value)))) {}
  template <std::integral I> F32(I value) : F32(of(literal_cell(double(value)))) {}
  template <class R>
    requires requires(const R& r) { r.get(); }
  F32(const R& reference) : F32(reference.get()) {}
  template <std::integral I> explicit operator I() const { no_meaning("a value becomes an integer"); }
  static F32 of(Datum value) {
    F32 r;
    r.low_ = tag_of(value) == kUnwritten ? kPoison : kTailCell, r.high_ = value;
    return r;
  }
  static F32 of(Datum low, Datum high) { F32 r; r.low_ = low, r.high_ = high; return r; }
  Datum low() const { return low_; }
  Datum high() const { return high_; }
  Datum value() const {
    if (low_ == kTailCell) [[likely]] return high_;
    return unusual();
  }

 private:
  Datum unusual() const {
    const unsigned low = tag_of(low_), high = tag_of(high_);
    if (low == kRaw && high == kRaw) return literal_cell(double(std::bit_cast<float>(low_ | high_ << 16)));
    if (high == kUnwritten || low == kUnwritten) return kPoison;
    if (high == kTail) no_meaning("the lower half of a float32 is used as a value");
    if (low == kTail) check_settled(low_);
    else if (low_ != 0) no_meaning("a float32 is put together from other things");
    return high_;
  }
  Datum low_, high_;
};

inline F32 operator+(F32 a, F32 b) { return F32::of(add_quickly(a.value(), b.value())); }
inline F32 operator-(F32 a) { return F32::of(negate_cell(a.value())); }
inline F32 operator+(F32 a) { return a; }
inline F32 operator-(F32 a, F32 b) { return F32::of(add_quickly(a.value(), negate_cell(b.value()))); }
inline F32 operator*(F32 a, F32 b) { return F32::of(multiply_quickly(a.value(), b.value())); }
inline F32 operator/(F32 a, F32 b) { return F32::of(divide_cells(a.value(), b.value())); }
inline F32& operator+=(F32& a, F32 b) { return a = a + b; }
inline F32& operator-=(F32& a, F32 b) { return a = a - b; }
inline F32& operator*=(F32& a, F32 b) { return a = a * b; }
inline F32& operator/=(F32& a, F32 b) { return a = a / b; }
#define KDSL_NO_ORDER(OP) inline bool operator OP(F32, F32) { no_meaning("a comparison of values"); }
KDSL_NO_ORDER(<) KDSL_NO_ORDER(>) KDSL_NO_ORDER(<=) KDSL_NO_ORDER(>=) KDSL_NO_ORDER(==) KDSL_NO_ORDER(!=)
#undef KDSL_NO_ORDER

using u16 = U16;
using u32 = U32;
using f32 = F32;
inline F32 f32_of_bits(uint32_t bits) { return F32(double(std::bit_cast<float>(bits))); }
inline F32 f32_of_word(U32 word) { return F32::of(word.low(), word.high()); }
inline U32 word_of(F32 value) { return U32::of(value.low(), value.high()); }

}  // namespace kdsl
