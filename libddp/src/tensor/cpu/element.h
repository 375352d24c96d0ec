#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>

#include "ddp/core/dtype.h"
#include "tensor/dispatch.h"

/// In front of a loop whose iterations do not touch each other's memory (an input may be the output itself,
/// element by element): lets the compiler vectorise without a check of addresses.
#if defined(__clang__)
#define DDP_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define DDP_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

/// One element from memory to the type arithmetic is done in, and back.
namespace ddp::raw::cpu {

#if defined(__F16C__)
inline float load(Half value) { return static_cast<float>(std::bit_cast<_Float16>(value)); }
inline Half half_from_float(float value) { return std::bit_cast<Half>(static_cast<_Float16>(value)); }
#else
inline float load(Half value) { return static_cast<float>(value); }
inline Half half_from_float(float value) { return Half(value); }
#endif
inline float load(BFloat16 value) { return static_cast<float>(value); }
template <class T>
  requires std::is_arithmetic_v<T>
constexpr T load(T value) {
  return value;
}

template <class T>
constexpr bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) return value != value;
  return false;
}

/// Conversion between number types: whole numbers outside the target's range saturate, NaN becomes 0 (plain
/// casts would be undefined); a narrower whole number keeps the low bits; bool is "not zero".
template <class To, class From>
inline To store(From value) {
  if constexpr (std::is_same_v<To, Half>) {
    return half_from_float(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    return BFloat16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From{};
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    constexpr auto low = static_cast<From>(std::numeric_limits<To>::min());
    // 2^bits as a floating-point number: the first value that is too large.
    constexpr To half = std::numeric_limits<To>::max() / 2 + 1;
    constexpr auto high = static_cast<From>(half) * 2;
    if (is_nan(value)) return 0;
    if (value < low) return std::numeric_limits<To>::min();
    if (value >= high) return std::numeric_limits<To>::max();
    return static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace ddp::raw::cpu
