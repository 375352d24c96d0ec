#pragma once

#include "ddp/tensor/tensor.h"

/// Raw matrix products; rules as in elementwise.h.
namespace ddp::raw {

/// a [.., m, k] x b [.., k, n] -> [.., m, n]; leading sizes broadcast; 1-d arguments as in NumPy's matmul.
/// Transposed views are used without a copy. With `accumulate`, `out` += the product.
Tensor matmul(const Tensor& a, const Tensor& b, const Tensor& out = {}, bool accumulate = false);
/// x [.., in] * weight [out, in]^T + bias [out] (bias may be undefined), bias fused; `relu` fused when asked.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, bool relu = false);
/// grad^T x: [out, in] of grad [.., out] and x [.., in].
Tensor linear_weight_grad(const Tensor& grad, const Tensor& x, const Tensor& out = {}, bool accumulate = false);
/// Both gradients of a linear layer's parameters: linear_weight_grad, and the sum of grad over all but its last
/// dimension. One launch where the backend can.
struct LinearGrads {
  Tensor weight;
  Tensor bias;
};
LinearGrads linear_parameter_grads(const Tensor& grad, const Tensor& x, const Tensor& weight_out,
                                   bool weight_accumulate, const Tensor& bias_out, bool bias_accumulate);

}  // namespace ddp::raw
