#pragma once

#include <cstddef>

#include "ddp/comm/types.h"
#include "ddp/core/dtype.h"

namespace ddp::comm {

/// dst[i] = a[i] op b[i] for n elements; dst may be a or b. 16-bit floats are computed in float32 and rounded.
/// The bits depend on the order of a and b only for signed zeros and NaN payloads.
using ReduceFunction = void (*)(void* dst, const void* a, const void* b, std::size_t n);

/// For `average` that of the sum: divide once it is complete.
ReduceFunction reduce_function(DType dtype, ReduceOp op);

/// x[i] = x[i] / ranks for n elements of a floating-point dtype: the true quotient, rounded once.
void divide_elements(DType dtype, void* x, std::size_t n, int ranks);

}  // namespace ddp::comm
