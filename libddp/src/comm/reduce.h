#pragma once

#include <cstddef>

#include "ddp/comm/types.h"
#include "ddp/core/dtype.h"

namespace ddp::comm {

/// dst[i] = a[i] op b[i] for n elements; dst may be a or b. 16-bit floats are computed in float32 and rounded.
/// The bits depend on the order of a and b only for signed zeros and NaN payloads.
using ReduceFunction = void (*)(void* dst, const void* a, const void* b, std::size_t n);

ReduceFunction reduce_function(DType dtype, ReduceOp op);

}  // namespace ddp::comm
