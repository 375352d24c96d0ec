#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ddp_kernels/types.h"

/// First element-by-element kernels. Each queues on `stream` of the current device, never blocks, and
/// returns the launch's error, or cudaErrorInvalidValue for a type or size that it does not take.
/// Zero elements launch nothing. Arithmetic on float16 and bfloat16 is done in float.
namespace ddp::kernels {

/// x[i] = value, converted to the type.
cudaError_t fill(void* x, Type type, const Sizes& sizes, const Strided& strides, double value, cudaStream_t stream);

/// destination[i] = source[i], converted. To bool: nonzero is true.
cudaError_t copy(void* destination, Type to, const Strided& destination_strides, const void* source, Type from,
                 const Strided& source_strides, const Sizes& sizes, cudaStream_t stream);

/// out[i] = a[i] + alpha * b[i], all of one type; `out` may be `a` or `b` with equal strides. Floating
/// types: product and sum are rounded as one fused multiply-add when alpha is not 1.
cudaError_t add(void* out, const Strided& out_strides, const void* a, const Strided& a_strides, const void* b,
                const Strided& b_strides, const Sizes& sizes, double alpha, Type type, cudaStream_t stream);

}  // namespace ddp::kernels
