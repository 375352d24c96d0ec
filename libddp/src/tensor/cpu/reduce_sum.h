#pragma once

#include "ddp/tensor/tensor.h"

namespace ddp::raw::cpu {

/// See ReduceBackend::sum; x has at least one element.
void sum(const Tensor& x, const Tensor& out, bool accumulate);

}  // namespace ddp::raw::cpu
