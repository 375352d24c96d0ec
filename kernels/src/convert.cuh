#pragma once

#include <cuda_runtime_api.h>

#include "ddp_kernels/types.h"

namespace ddp::kernels {

/// copy() between two different types.
cudaError_t convert(const Array& destination, Type to, const ConstArray& source, Type from, const Sizes& sizes,
                    cudaStream_t stream);

}  // namespace ddp::kernels
