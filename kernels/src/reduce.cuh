#pragma once

#include "map.cuh"

/// What reductions share: how elements are dealt to threads.
namespace ddp::kernels {

inline constexpr int kReduceThreads = 256;

/// The smallest power of two that is not below n, up to `most`.
inline int power_of_two(std::int64_t n, int most) {
  int result = 1;
  while (result < n && result < most) result *= 2;
  return result;
}

/// A block reduces `kept` results with `lanes` threads each, kept * lanes = kReduceThreads. Where the reduced
/// elements are the ones that lie side by side (`inner`), neighbouring threads take neighbouring reduced elements,
/// else neighbouring results: reads are of whole lines either way.
struct Mapping {
  bool inner = true;
  int lanes = 1;
  int kept = kReduceThreads;
  std::int64_t blocks = 1;

  /// For so many results of so many elements; `run` of the latter lie next to each other, by smaller strides than
  /// the results when `closer`.
  void set(std::int64_t results, std::int64_t elements, std::int64_t run, bool closer) {
    constexpr std::int64_t kShortRun = 16;
    inner = results == 1 || (closer && (run >= kShortRun || run == elements));
    if (inner) {
      constexpr std::int64_t kMany = 2048;  // results: enough for all of the device with a warp each
      lanes = power_of_two((elements + 3) / 4, results >= kMany ? 32 : kReduceThreads);
    } else {
      constexpr std::int64_t kFew = 4096;  // results: narrower blocks, so that there are more of them
      const int columns = power_of_two(results, results <= kFew ? 16 : 32);
      lanes = power_of_two(elements, kReduceThreads / columns);
    }
    kept = kReduceThreads / lanes;
    blocks = (results + kept - 1) / kept;
  }

  __device__ int result_of(int thread) const { return inner ? thread / lanes : thread % kept; }
  __device__ int lane_of(int thread) const { return inner ? thread % lanes : thread / kept; }
};

}  // namespace ddp::kernels
