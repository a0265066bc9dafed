// Pointers of the kernel text. The translation turns every `T*` into `Pointer<T>`, which remembers the buffer that it
// came from, so that each access is checked against that buffer, whatever lies beside it in memory.
#pragma once

#include <bit>
#include <concepts>
#include <cstring>
#include <type_traits>

#include "interface.h"
#include "numbers.h"
#include "vectors.h"

namespace kdsl {

template <class T> class Pointer;

// Numbers of the machine that runs this, as opposed to cells of the fields.
template <class T> inline constexpr bool kNative = std::is_arithmetic_v<T> || std::is_enum_v<T>;
#define KDSL_NATIVE(NAME)                                       \
  template <> inline constexpr bool kNative<NAME##1> = true;    \
  template <> inline constexpr bool kNative<NAME##2> = true;    \
  template <> inline constexpr bool kNative<NAME##3> = true;    \
  template <> inline constexpr bool kNative<NAME##4> = true;
KDSL_NATIVE(char) KDSL_NATIVE(uchar) KDSL_NATIVE(short) KDSL_NATIVE(int) KDSL_NATIVE(longlong) KDSL_NATIVE(ulonglong)
#undef KDSL_NATIVE

// Bytes of memory here that a T takes in a buffer or in shared memory.
template <class T> inline constexpr size_t kBytes = sizeof(T) * (kNative<T> ? kScale : 1);
template <class T> inline constexpr unsigned kAlignment = alignof(T) * (kNative<T> ? kScale : 1);

template <class T> T load_from(const Region* region, uintptr_t address) {
  T value;
  if constexpr (kBytes<T> == sizeof(T)) {
    load(region, address, &value, sizeof value, alignof(T));
  } else if constexpr (sizeof(T) == 1) {
    outside_emulation("single bytes in memory");
  } else {
    u16 pieces[sizeof(T) / 2];
    load(region, address, pieces, sizeof pieces, kAlignment<T>);
    uint16_t bits[sizeof(T) / 2];
    for (size_t i = 0; i < sizeof(T) / 2; ++i) bits[i] = pieces[i];
    std::memcpy(&value, bits, sizeof value);
  }
  return value;
}
template <class T> void store_to(const Region* region, uintptr_t address, const T& value) {
  if constexpr (kBytes<T> == sizeof(T)) {
    store(region, address, &value, sizeof value, alignof(T));
  } else if constexpr (sizeof(T) == 1) {
    outside_emulation("single bytes in memory");
  } else {
    uint16_t bits[sizeof(T) / 2];
    std::memcpy(bits, &value, sizeof value);
    u16 pieces[sizeof(T) / 2];
    for (size_t i = 0; i < sizeof(T) / 2; ++i) pieces[i] = bits[i];
    store(region, address, pieces, sizeof pieces, kAlignment<T>);
  }
}

// `*p` or `p[i]`: reading it is a checked load, assigning to it a checked store.
template <class T> class Reference {
 public:
  using Value = std::remove_const_t<T>;

  Reference(const Region* region, uintptr_t address) : region_(region), address_(address) {}
  Reference(const Reference&) = default;

  Value get() const {
    if (region_ == nullptr) return *reinterpret_cast<const Value*>(address_);
    return load_from<Value>(region_, address_);
  }
  operator Value() const { return get(); }
  template <class U>
    requires(std::is_arithmetic_v<U> && std::is_class_v<T> && std::is_convertible_v<T, float>)
  explicit operator U() const { return static_cast<U>(static_cast<float>(get())); }

  const Reference& operator=(const Value& value) const {
    static_assert(!std::is_const_v<T>, "assignment through a pointer to const");
    if (region_ == nullptr) *reinterpret_cast<Value*>(address_) = value;
    else store_to<Value>(region_, address_, value);
    return *this;
  }
  const Reference& operator=(const Reference& other) const { return *this = other.get(); }
  template <class U> const Reference& operator=(const Reference<U>& other) const { return *this = Value(other.get()); }
  const Reference& operator+=(const Value& value) const { return *this = get() + value; }
  const Reference& operator-=(const Value& value) const { return *this = get() - value; }
  const Reference& operator*=(const Value& value) const { return *this = get() * value; }
  const Reference& operator|=(const Value& value) const { return *this = get() | value; }
  const Reference& operator^=(const Value& value) const { return *this = get() ^ value; }
  Pointer<T> operator&() const { return Pointer<T>(region_, address_); }
  T* own() const { return region_ == nullptr ? reinterpret_cast<T*>(address_) : nullptr; }  // of the thread's own memory

 private:
  const Region* region_;
  uintptr_t address_;
};

// What both kinds of pointer share: where it points and what it may reach.
class Address {
 public:
  Address() = default;
  Address(const Region* region, uintptr_t address) : region_(region), address_(address) {}
  explicit Address(uint64_t generic) : region_(region_of(generic)), address_(generic) {}

  const Region* region() const { return region_; }
  uintptr_t address() const { return address_; }
  Address operator+(int64_t bytes) const { return Address(region_, address_ + uintptr_t(bytes)); }
  explicit operator bool() const { return address_ != 0; }
  template <std::integral I>
    requires(!std::same_as<I, bool>)
  explicit operator I() const { return I(address_); }
  bool operator==(const Address& other) const { return address_ == other.address_; }
  bool operator==(std::nullptr_t) const { return address_ == 0; }

 protected:
  const Region* region_ = nullptr;
  uintptr_t address_ = 0;
};

template <class T, long N> struct Registers;

// A value itself, or what a reference to memory holds.
template <class T> T plain(const T& value) { return value; }
template <class T> typename Reference<T>::Value plain(const Reference<T>& value) { return value.get(); }
template <class T> concept Index = requires(const T& value) { { plain(value) } -> std::integral; };

template <class T> class Pointer : public Address {
 public:
  using Address::Address;
  Pointer() = default;
  Pointer(std::nullptr_t) {}
  Pointer(T* own) : Address(nullptr, reinterpret_cast<uintptr_t>(own)) {}
  template <class U>
    requires(!std::same_as<U, T>)
  explicit(!std::is_convertible_v<U*, T*>) Pointer(U* own) : Address(nullptr, reinterpret_cast<uintptr_t>(own)) {}
  template <class U>
    requires(!std::same_as<U, T>)
  explicit(!std::is_convertible_v<U*, T*>) Pointer(const Pointer<U>& other)
      : Address(other.region(), other.address()) {}
  template <class U, long N>
  explicit(!std::is_convertible_v<U*, T*>) Pointer(Registers<U, N>& own) : Pointer(static_cast<U*>(own)) {}

  Reference<T> operator*() const { return {region_, address_}; }
  template <Index I> Reference<T> operator[](const I& index) const { return *(*this + index); }
  template <Index I> Pointer operator+(const I& elements) const {
    const size_t bytes = region_ == nullptr ? sizeof(T) : kBytes<std::remove_const_t<T>>;
    return Pointer(region_, address_ + uintptr_t(int64_t(plain(elements))) * bytes);
  }
  template <Index I> Pointer operator-(const I& elements) const { return *this + -int64_t(plain(elements)); }
  template <Index I> Pointer& operator+=(const I& elements) { return *this = *this + elements; }
  Pointer& operator++() { return *this += 1; }
  // Members are reached only in the thread's own memory: elements of a vector that was loaded whole.
  T* operator->() const {
    if (region_ != nullptr) outside_emulation("a member of a vector in shared or global memory, without loading it");
    return reinterpret_cast<T*>(address_);
  }
};

template <class T> class VoidPointer : public Address {
 public:
  using Address::Address;
  VoidPointer(std::nullptr_t) {}
  template <class U> VoidPointer(U* own) : Address(nullptr, reinterpret_cast<uintptr_t>(own)) {}
  template <class U> VoidPointer(const Pointer<U>& other) : Address(other.region(), other.address()) {}
  template <class U, long N> VoidPointer(Registers<U, N>& own) : VoidPointer(static_cast<U*>(own)) {}
};
template <> class Pointer<void> : public VoidPointer<void> { using VoidPointer::VoidPointer; };
template <> class Pointer<const void> : public VoidPointer<const void> { using VoidPointer::VoidPointer; };

// A local array of the kernel: registers on the device. It starts as NaN, integers as no mask of a whole warp and no
// small number; its bounds are checked.
template <class T, long N> struct Registers {
  T elements[N];

  Registers() { std::memset(static_cast<void*>(elements), std::is_integral_v<T> ? 0xa5 : 0xff, sizeof elements); }
  operator T*() { return elements; }
  template <Index I> T& operator[](const I& index) {
    const auto number = plain(index);
    if (uint64_t(number) >= uint64_t(N)) [[unlikely]] { outside_registers(long(number), N); return elements[0]; }
    return elements[number];
  }
  template <Index I> T* operator+(const I& offset) { return elements + plain(offset); }
};

template <class T> Pointer<T> static_shared(unsigned number) {
  const Region* array = static_array(number);
  return Pointer<T>(array, base_of(array));
}
template <class T> Pointer<T> dynamic_shared() {
  const Region* array = dynamic_array();
  return Pointer<T>(array, base_of(array));
}

// The value of one launch argument as the kernel's parameter type.
template <class T> struct Parameter {
  static T from(const Argument& argument) {
    T value;
    std::memcpy(&value, &argument.bits, sizeof value);
    return value;
  }
};
template <class T> struct Parameter<Pointer<T>> {
  static Pointer<T> from(const Argument& argument) {
    return Pointer<T>(argument.region, argument.region ? base_of(argument.region) : 0);
  }
};

// `reinterpret_cast` of the kernel text.
template <class To, class From> To cast_to(From&& from) { return (To)from; }

// Operands of an asm statement as the registers that its constraints name.
template <class T> u32 word(const T& operand) {
  const auto value = plain(operand);
  if constexpr (std::is_integral_v<decltype(plain(operand))>) {
    return u32(value);
  } else {
    static_assert(sizeof value <= 4 * kScale, "an operand of 32 bits");
    u32 bits = 0;
    std::memcpy(static_cast<void*>(&bits), &value, sizeof value);
    return bits;
  }
}
template <class T> u16 halfword(const T& operand) { return u16(word(operand)); }
template <class T> auto wide(const T& operand) {
  if constexpr (std::is_base_of_v<Address, T>) return Address(operand);
  else return uint64_t(plain(operand));
}
template <class T> Address wide(T* operand) { return Address(nullptr, reinterpret_cast<uintptr_t>(operand)); }

}  // namespace kdsl
