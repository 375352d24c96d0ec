#pragma once

#include <cstdint>
#include <vector>

#include "ddp/tensor/tensor.h"

/// What the groups of ranks do with memory on a CUDA device: no autograd, contiguous tensors, on the current stream.
/// Without CUDA they throw NotAvailable; CPU groups have their own ways.
namespace ddp::raw {

enum class Combine : std::uint8_t { sum, product, min, max };

/// Each output = ((source0 op source1) op source2) ..., divided by `divisor` (1: not; more: floating dtypes only). All
/// of one dtype, one number of elements and one device; outputs may be sources. 16-bit floats are computed in float and
/// rounded once; whole numbers wrap; of bool sum and max are "or", product and min "and".
void combine(const std::vector<Tensor>& sources, const std::vector<Tensor>& outputs, Combine op, int divisor);

/// x = x / divisor, the true quotient rounded once.
void divide_(const Tensor& x, int divisor);

}  // namespace ddp::raw
