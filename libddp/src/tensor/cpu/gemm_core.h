#pragma once

#include <cstdint>

#include "ddp/core/device.h"

namespace ddp::raw::cpu {

/// A matrix in memory: element (i, j) at data[i * row_stride + j * column_stride].
template <class T>
struct MatrixView {
  T* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;
  MatrixView transposed() const { return {data, column_stride, row_stride}; }
  T* at(std::int64_t i, std::int64_t j) const { return data + i * row_stride + j * column_stride; }
};

/// What happens to C beside the product.
template <class T>
struct GemmOptions {
  bool accumulate = false;         ///< C += the product
  const T* column_bias = nullptr;  ///< added to every row of C
  const T* row_bias = nullptr;     ///< added to every column of C
  bool relu = false;               ///< last
};

/// C [m, n] = A [m, k] B [k, n] on the threads of `device`. Any strides; C must not overlap A or B. Results do
/// not depend on the number of threads. For float and double.
template <class T>
void gemm(Device device, std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<const T> a, MatrixView<const T> b,
          MatrixView<T> c, const GemmOptions<T>& options = {});

}  // namespace ddp::raw::cpu
