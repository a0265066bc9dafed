// Registers of 32 and 16 bits and float32 as the kernel holds them: the machine's own, or under KDSL_FIELD cells that
// know what stands in them (field/cells.h).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#define KDSL_INTERFACE __attribute__((visibility("default")))

#ifdef KDSL_FIELD
#include "field/cells.h"
#else
namespace kdsl {
constexpr unsigned kScale = 1;  // bytes here for each byte of the device
using u16 = uint16_t;
using u32 = uint32_t;
using f32 = float;
inline float f32_of_bits(uint32_t bits) { return std::bit_cast<float>(bits); }
inline float f32_of_word(uint32_t word) { return std::bit_cast<float>(word); }
inline uint32_t word_of(float value) { return std::bit_cast<uint32_t>(value); }
}  // namespace kdsl
#endif
