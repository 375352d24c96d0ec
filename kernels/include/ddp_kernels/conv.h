#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ddp_kernels/types.h"

/// Convolution as a matrix product: each place of the kernel becomes a column. Rules as in elementwise.h.
namespace ddp::kernels {

/// Row-major x [n, c, h, w], kernel places r x s, result places p x q.
struct ConvGeometry {
  std::int64_t n = 0, c = 0, h = 0, w = 0;
  std::int64_t r = 0, s = 0;
  std::int64_t p = 0, q = 0;
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t padding_h = 0, padding_w = 0;
  std::int64_t dilation_h = 1, dilation_w = 1;
};

/// columns[((c * r + i) * s + j) * tap_stride + image * image_stride + (p, q)] = x at the place that output (p, q) sees
/// through kernel place (i, j) of channel c, 0 in the padding.
cudaError_t image_to_columns(void* columns, std::int64_t tap_stride, std::int64_t image_stride, const void* x,
                             const ConvGeometry& geometry, Type type, cudaStream_t stream);

/// x = sum of the columns that saw each of its elements, in the order of kernel places.
cudaError_t columns_to_image(void* x, const void* columns, std::int64_t tap_stride, std::int64_t image_stride,
                             const ConvGeometry& geometry, Type type, cudaStream_t stream);

}  // namespace ddp::kernels
