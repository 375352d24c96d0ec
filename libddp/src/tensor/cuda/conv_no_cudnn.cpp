#include "tensor/cuda/conv_cudnn.h"

namespace ddp::raw::cuda {

bool has_cudnn() { return false; }
bool cudnn_forward(const Tensor&, const Tensor&, const ConvParams&, const Tensor&) { return false; }
bool cudnn_input_grad(const Tensor&, const Tensor&, const ConvParams&, const Tensor&) { return false; }
bool cudnn_weight_grad(const Tensor&, const Tensor&, const ConvParams&, const Tensor&) { return false; }

}  // namespace ddp::raw::cuda
