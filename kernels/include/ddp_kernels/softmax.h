#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ddp_kernels/types.h"

/// Softmax and its logarithm. Rules as in elementwise.h; floating-point types. Sums are taken in an order that
/// depends on the sizes alone, so that results repeat bit for bit.
namespace ddp::kernels {

/// Row-major arrays seen as [outer, length, inner]; the function runs along `length`.
struct Softmax {
  std::int64_t outer = 0;
  std::int64_t length = 0;
  std::int64_t inner = 0;
  bool logarithm = false;
};

/// A row that is all -infinity, or has NaN or +infinity in it, becomes NaN. y may be x.
cudaError_t softmax(void* y, const void* x, const Softmax& shape, Type type, cudaStream_t stream);

/// From the gradient of y and the saved y. x_grad may be grad or y.
cudaError_t softmax_grad(void* x_grad, const void* grad, const void* y, const Softmax& shape, Type type,
                         cudaStream_t stream);

}  // namespace ddp::kernels
