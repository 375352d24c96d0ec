#pragma once

#include "tensor/conv.h"

/// Convolution by cuDNN. Each function queues its work and returns true, or does nothing and returns false: for what
/// cuDNN has no suitable algorithm for, and in a build without cuDNN (conv_no_cudnn.cpp). All tensors row-major.
namespace ddp::raw::cuda {

/// Whether this build has cuDNN.
bool has_cudnn();

bool cudnn_forward(const Tensor& x, const Tensor& weight, const ConvParams& params, const Tensor& out);
bool cudnn_input_grad(const Tensor& grad, const Tensor& weight, const ConvParams& params, const Tensor& out);
bool cudnn_weight_grad(const Tensor& grad, const Tensor& x, const ConvParams& params, const Tensor& out);

}  // namespace ddp::raw::cuda
