#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ddp_kernels/types.h"

/// 2-d pooling of row-major planes: inputs [planes, h, w], outputs [planes, p, q], of one floating-point type.
/// Sums are taken in float for the 16-bit types, in the order of the CPU where a thread has a window to itself.
/// Gradients are gathered, so nothing depends on timing. Each call is one launch on `stream` of the current device,
/// never blocks, and returns the launch's error, or cudaErrorInvalidValue for a type that it does not take. No
/// elements launch nothing.
namespace ddp::kernels {

struct PoolShape {
  std::int64_t planes;
  std::int64_t h, w;
  std::int64_t p, q;
};
/// Output row i covers input rows from i * stride - padding on, as far as they exist. Padding is at most half the
/// window, strides are at least 1.
struct PoolWindow {
  std::int64_t kernel_h, kernel_w;
  std::int64_t stride_h, stride_w;
  std::int64_t padding_h, padding_w;
};

/// Largest of each window and its index inside the h*w plane: the first of equals, but the last NaN where there is one.
cudaError_t max_pool(const void* x, void* values, std::int32_t* indices, const PoolShape& shape,
                     const PoolWindow& window, Type type, cudaStream_t stream);
/// out[i] = sum of the gradients of the windows that chose i.
cudaError_t max_pool_grad(const void* grad, const std::int32_t* indices, void* out, const PoolShape& shape,
                          const PoolWindow& window, Type type, cudaStream_t stream);

/// Averages over the window's size, or with `count_padding` over the size it would have without edges.
cudaError_t average_pool(const void* x, void* out, const PoolShape& shape, const PoolWindow& window, bool count_padding,
                         Type type, cudaStream_t stream);
cudaError_t average_pool_grad(const void* grad, void* out, const PoolShape& shape, const PoolWindow& window,
                              bool count_padding, Type type, cudaStream_t stream);

/// Output row i averages input rows [floor(i*h/p), ceil((i+1)*h/p)), columns likewise.
cudaError_t adaptive_average_pool(const void* x, void* out, const PoolShape& shape, Type type, cudaStream_t stream);
cudaError_t adaptive_average_pool_grad(const void* grad, void* out, const PoolShape& shape, Type type,
                                       cudaStream_t stream);

}  // namespace ddp::kernels
