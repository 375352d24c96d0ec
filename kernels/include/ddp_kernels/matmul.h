#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ddp_kernels/types.h"

/// What surrounds the products of the libraries. Rules as in elementwise.h.
namespace ddp::kernels {

/// A batch of matrices: strides in elements.
struct Matrices {
  void* data = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
};
struct ConstMatrices {
  const void* data = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
};

/// out [batch, m, n] = or += a [batch, m, k] x b [batch, k, n], any strides, k may be 0. Simple and slow: for what a
/// library does not take. Sums in float32 (float64 for float64), in the order of k.
cudaError_t matmul(const Matrices& out, const ConstMatrices& a, const ConstMatrices& b, std::int64_t batch,
                   std::int64_t m, std::int64_t n, std::int64_t k, bool accumulate, Type type, cudaStream_t stream);

/// x [outer, channels, inner], where channels lie `channel_stride` apart, rows of channels `outer_stride` apart and
/// the rest is dense: x += bias[channel] (null: nothing), then max(x, 0) when `relu`; NaN stays NaN.
cudaError_t add_bias(void* x, const void* bias, bool relu, std::int64_t outer, std::int64_t channels,
                     std::int64_t inner, std::int64_t outer_stride, std::int64_t channel_stride, Type type,
                     cudaStream_t stream);

}  // namespace ddp::kernels
