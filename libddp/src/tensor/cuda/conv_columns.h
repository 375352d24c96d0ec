#pragma once

#include "tensor/conv.h"

/// Convolution as matrix products over columns: the way without cuDNN, for what cuDNN does not take, and what it is
/// tested against. All tensors row-major; sizes fit each other.
namespace ddp::raw::cuda {

void columns_forward(const Tensor& x, const Tensor& weight, const ConvParams& params, const Tensor& out);
void columns_input_grad(const Tensor& grad, const Tensor& weight, const ConvParams& params, const Tensor& out);
void columns_weight_grad(const Tensor& grad, const Tensor& x, const ConvParams& params, const Tensor& out,
                         bool accumulate);

}  // namespace ddp::raw::cuda
