#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ddp_kernels/types.h"

/// Movement of elements. Rules as in elementwise.h.
namespace ddp::kernels {

/// x[i] = value, converted to the type.
cudaError_t fill(const Array& x, Type type, const Sizes& sizes, double value, cudaStream_t stream);

/// destination[i] = source[i], converted as ddp::raw::copy_ says. The memories do not meet. Of one type, a
/// transposition goes through tiles in shared memory, so that both sides are read and written in whole lines.
cudaError_t copy(const Array& destination, Type to, const ConstArray& source, Type from, const Sizes& sizes,
                 cudaStream_t stream);

/// out[i] = x[index[i]] for rows of `row_bytes` bytes, `rows` of them in x, `count` in out. Where the index is out
/// of range the row's bytes become 0xff (NaN) for a floating-point type and 0 for others.
cudaError_t index_rows(void* out, const void* x, Type type, std::int64_t rows, std::int64_t row_bytes,
                       const std::int64_t* index, std::int64_t index_stride, std::int64_t count, cudaStream_t stream);

}  // namespace ddp::kernels
