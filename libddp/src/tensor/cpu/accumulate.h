#pragma once

#include <cstdint>
#include <type_traits>

#include "tensor/cpu/element.h"
#include "tensor/dispatch.h"

/// Sums that lose little: eight numbers at a time are added as a tree in the compute type, then to a wider
/// accumulator (double, or int64 for whole numbers). The order depends on the sizes only.
namespace ddp::raw::cpu {

/// The type the tree of eight is added in.
template <class T>
using TreeType = std::conditional_t<std::is_integral_v<T>, std::int64_t, ComputeType<T>>;

/// sums[c] += p[r * row_step + c * column_step] over r < rows, for c < columns. Steps in elements.
template <class T>
void accumulate_rows(SumType<T>* sums, const T* p, std::int64_t row_step, std::int64_t rows, std::int64_t column_step,
                     std::int64_t columns) {
  using A = SumType<T>;
  using C = TreeType<T>;
  const auto at = [](const T* q) { return static_cast<C>(load(*q)); };
  const auto eight = [&](std::int64_t step) {
    DDP_INDEPENDENT_ITERATIONS
    for (std::int64_t c = 0; c < columns; ++c) {
      const T* q = p + c * step;
      const C low = (at(q) + at(q + row_step)) + (at(q + 2 * row_step) + at(q + 3 * row_step));
      const C high = (at(q + 4 * row_step) + at(q + 5 * row_step)) + (at(q + 6 * row_step) + at(q + 7 * row_step));
      sums[c] += static_cast<A>(low + high);
    }
  };
  const auto one = [&](std::int64_t step) {
    DDP_INDEPENDENT_ITERATIONS
    for (std::int64_t c = 0; c < columns; ++c) sums[c] += static_cast<A>(at(p + c * step));
  };
  const bool dense = column_step == 1;
  for (; rows >= 8; rows -= 8, p += 8 * row_step) dense ? eight(1) : eight(column_step);
  for (; rows > 0; --rows, p += row_step) dense ? one(1) : one(column_step);
}

/// Sum of n elements `step` apart.
template <class T>
SumType<T> sum_run(const T* p, std::int64_t step, std::int64_t n) {
  using A = SumType<T>;
  constexpr std::int64_t kLanes = 16;
  A total{};
  if (step == 1 && n >= kLanes) {
    A lanes[kLanes] = {};
    accumulate_rows<T>(lanes, p, kLanes, n / kLanes, 1, kLanes);
    for (std::int64_t width = kLanes / 2; width > 0; width /= 2) {
      for (std::int64_t l = 0; l < width; ++l) lanes[l] += lanes[l + width];
    }
    total = lanes[0];
    p += n / kLanes * kLanes;
    n %= kLanes;
  }
  for (std::int64_t i = 0; i < n; ++i) total += static_cast<A>(load(p[i * step]));
  return total;
}

}  // namespace ddp::raw::cpu
