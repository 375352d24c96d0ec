#pragma once

#include <cstdint>

namespace ddp::raw::cpu {

/// Sum of f(i) for i < n as a double. Short runs are summed in the type of f by many sums side by side, an
/// order that vectorises as it stands and is always the same; the runs are added in double, so that the error
/// does not grow with n.
template <class F>
double lane_sum(std::int64_t n, F&& f) {
  using Value = decltype(f(std::int64_t{}));
  constexpr std::int64_t kSums = 32;
  constexpr std::int64_t kRun = 32 * kSums;
  double total = 0;
  for (std::int64_t begin = 0; begin < n; begin += kRun) {
    const std::int64_t end = begin + kRun < n ? begin + kRun : n;
    Value sums[kSums] = {};
    std::int64_t i = begin;
    for (; i + kSums <= end; i += kSums) {
      for (std::int64_t j = 0; j < kSums; ++j) sums[j] += f(i + j);
    }
    for (std::int64_t j = 0; i < end; ++i, ++j) sums[j] += f(i);
    for (const Value sum : sums) total += static_cast<double>(sum);
  }
  return total;
}

}  // namespace ddp::raw::cpu
