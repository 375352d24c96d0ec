#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

/// Arithmetic on compute types. Whole numbers wrap around instead of overflowing, which would be undefined.
namespace ddp::raw::cpu {

template <class T>
using Wrapping = std::conditional_t<(sizeof(T) < 4), std::uint32_t, std::make_unsigned_t<T>>;

template <class T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  } else {
    return a + b;
  }
}
template <class T>
T sub(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
  } else {
    return a - b;
  }
}
template <class T>
T mul(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  } else {
    return a * b;
  }
}
template <class T>
T absolute(T x) {
  if constexpr (std::is_integral_v<T>) {
    return x < T{0} ? sub(T{0}, x) : x;
  } else {
    return std::fabs(x);
  }
}

}  // namespace ddp::raw::cpu
