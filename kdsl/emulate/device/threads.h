// Rendezvous of threads, reads through the read-only path, and address conversion, under CUDA's names.
#pragma once

#include "pointers.h"

constexpr int warpSize = 32;

inline void __syncthreads() { kdsl::block_barrier(); }
inline void __syncwarp(unsigned lanes = 0xffffffff) { kdsl::warp_barrier(lanes); }
inline unsigned __activemask() { return kdsl::active_lanes(); }
inline void __threadfence() {}
inline void __threadfence_block() {}

namespace kdsl {
// A value goes in pieces of 32 bits, as nvcc compiles it.
template <class T> T shuffle_value(Shuffle kind, unsigned lanes, const T& value, unsigned operand, int width) {
  using Piece = std::conditional_t<kNative<T>, uint32_t, u32>;
  constexpr unsigned words = (sizeof(T) + sizeof(Piece) - 1) / sizeof(Piece);
  Piece pieces[words] = {};
  std::memcpy(static_cast<void*>(pieces), &value, sizeof value);
  for (Piece& piece : pieces) piece = Piece(shuffle(kind, lanes, u32(piece), operand, uint32_t(width)));
  T result;
  std::memcpy(static_cast<void*>(&result), pieces, sizeof result);
  return result;
}
}  // namespace kdsl

template <class T> auto __shfl_sync(unsigned lanes, const T& value, int from, int width = 32) {
  return kdsl::shuffle_value(kdsl::Shuffle::index, lanes, kdsl::plain(value), unsigned(from), width);
}
template <class T> auto __shfl_up_sync(unsigned lanes, const T& value, unsigned by, int width = 32) {
  return kdsl::shuffle_value(kdsl::Shuffle::up, lanes, kdsl::plain(value), by, width);
}
template <class T> auto __shfl_down_sync(unsigned lanes, const T& value, unsigned by, int width = 32) {
  return kdsl::shuffle_value(kdsl::Shuffle::down, lanes, kdsl::plain(value), by, width);
}
template <class T> auto __shfl_xor_sync(unsigned lanes, const T& value, int mask, int width = 32) {
  return kdsl::shuffle_value(kdsl::Shuffle::exchange, lanes, kdsl::plain(value), unsigned(mask), width);
}
inline unsigned __ballot_sync(unsigned lanes, int predicate) { return kdsl::ballot(lanes, predicate != 0); }
inline int __any_sync(unsigned lanes, int predicate) { return kdsl::ballot(lanes, predicate != 0) != 0; }
inline int __all_sync(unsigned lanes, int predicate) { return kdsl::ballot(lanes, predicate == 0) == 0; }

template <class T> auto __ldg(kdsl::Pointer<T> from) { return (*from).get(); }
template <class T> auto __ldcg(kdsl::Pointer<T> from) { return (*from).get(); }
template <class T> auto __ldcs(kdsl::Pointer<T> from) { return (*from).get(); }
template <class T> void __stcs(kdsl::Pointer<T> to, std::type_identity_t<T> value) { *to = value; }
template <class T> void __stcg(kdsl::Pointer<T> to, std::type_identity_t<T> value) { *to = value; }

inline size_t __cvta_generic_to_shared(const kdsl::Address& address) { return kdsl::shared_address(address.address()); }

// TVM's texts define it for pointers of the language.
template <class T> kdsl::Pointer<T> tvm_builtin_pointer_offset(kdsl::Pointer<T> pointer, int elements) {
  return pointer + elements;
}
