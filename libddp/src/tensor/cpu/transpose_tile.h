#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "tensor/cpu/simd.h"

/// Transposition of blocks in registers.
namespace ddp::raw::cpu {

namespace detail {

// Exchanges the off-diagonal halves of all 2*Step x 2*Step blocks of the pair of rows a, b that are Step apart.
template <int Step, class V, std::size_t... Lane>
inline void exchange(V& a, V& b, std::index_sequence<Lane...>) {
  constexpr int lanes = sizeof...(Lane);
  const V low = __builtin_shufflevector(
      a, b, ((static_cast<int>(Lane) & Step) == 0 ? static_cast<int>(Lane) : lanes + static_cast<int>(Lane) - Step)...);
  const V high = __builtin_shufflevector(
      a, b, ((static_cast<int>(Lane) & Step) == 0 ? static_cast<int>(Lane) + Step : lanes + static_cast<int>(Lane))...);
  a = low;
  b = high;
}

template <class T, int Step>
inline void transpose_steps(Vector<T> (&rows)[kLanes<T>]) {
  if constexpr (Step > 0) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes<T>; ++i) {
      if ((i & Step) == 0) exchange<Step>(rows[i], rows[i + Step], std::make_index_sequence<kLanes<T>>{});
    }
    transpose_steps<T, Step / 2>(rows);
  }
}

}  // namespace detail

/// to[j * to_stride + i] = from[i * from_stride + j] for rows i < height and columns j < width; elements with
/// height <= i < padded are set to 0. `padded` must not be above to_stride.
template <class T>
void transpose_into(const T* from, std::int64_t from_stride, std::int64_t height, std::int64_t width, T* to,
                    std::int64_t to_stride, std::int64_t padded) {
  constexpr std::int64_t lanes = kLanes<T>;
  std::int64_t i = 0;
  for (; i + lanes <= height; i += lanes) {
    std::int64_t j = 0;
    for (; j + lanes <= width; j += lanes) {
      Vector<T> rows[lanes];
#pragma GCC unroll 16
      for (int r = 0; r < lanes; ++r) rows[r] = load_vector(from + (i + r) * from_stride + j);
      detail::transpose_steps<T, static_cast<int>(lanes) / 2>(rows);
#pragma GCC unroll 16
      for (int r = 0; r < lanes; ++r) store_vector(to + (j + r) * to_stride + i, rows[r]);
    }
    for (; j < width; ++j) {
      for (std::int64_t r = i; r < i + lanes; ++r) to[j * to_stride + r] = from[r * from_stride + j];
    }
  }
  if (i == padded) return;
  for (std::int64_t j = 0; j < width; ++j) {
    for (std::int64_t r = i; r < height; ++r) to[j * to_stride + r] = from[r * from_stride + j];
    for (std::int64_t r = height; r < padded; ++r) to[j * to_stride + r] = T{};
  }
}

}  // namespace ddp::raw::cpu
