#pragma once

#include <cmath>
#include <vector>

#include "reference.h"

/// Inputs of small whole numbers: their products and sums are exact in float32, so results of the dense
/// operations must equal the reference, whatever the order of summation.
namespace ddp::test {

inline const std::vector<DType> kDense = {DType::float32, DType::float64, DType::bfloat16, DType::float16};

inline Tensor whole_numbers(const Dims& sizes, DType dtype, std::uint64_t seed, int low = -3, int high = 3) {
  Lcg numbers(seed);
  std::vector<double> values(static_cast<std::size_t>(sizes.product()));
  for (double& value : values) value = std::floor(numbers.uniform(low, high + 1));
  return make(values, sizes, dtype);
}

/// These values after one rounding to `dtype`.
inline std::vector<double> rounded(const std::vector<double>& values, DType dtype) {
  return make(values, {static_cast<std::int64_t>(values.size())}, dtype).to_vector<double>();
}

/// Runs `function` with 1, 2 and 5 threads and returns the results.
template <class F>
std::vector<std::vector<double>> with_thread_counts(F&& function) {
  const int before = num_threads();
  std::vector<std::vector<double>> results;
  for (const int threads : {1, 2, 5}) {
    set_num_threads(threads);
    results.push_back(function());
  }
  set_num_threads(before);
  return results;
}

}  // namespace ddp::test
