#pragma once

#include "ddp/tensor/tensor.h"

namespace ddp::parallel {

/// sum /= ranks, in place, on the current stream. A division, not a product with the rounded reciprocal, so
/// that a sum that `ranks` divides gives the exact quotient (for powers of two both are the same).
void divide_(const Tensor& sum, int ranks);

}  // namespace ddp::parallel
