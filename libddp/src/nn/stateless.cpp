#include "ddp/autograd/functions.h"
#include "ddp/nn/activation.h"
#include "ddp/nn/loss.h"
#include "ddp/nn/pooling.h"

/// Modules without parameters: each calls the function of its name.
namespace ddp::nn {

Tensor ReLU::forward(const Tensor& x) { return relu(x); }
Tensor GELU::forward(const Tensor& x) { return gelu(x); }
Tensor Sigmoid::forward(const Tensor& x) { return sigmoid(x); }
Tensor Tanh::forward(const Tensor& x) { return tanh(x); }

Tensor MaxPool2d::forward(const Tensor& x) { return max_pool2d(x, kernel_, options_); }
Tensor AvgPool2d::forward(const Tensor& x) { return avg_pool2d(x, kernel_, options_); }
Tensor AdaptiveAvgPool2d::forward(const Tensor& x) { return adaptive_avg_pool2d(x, output_); }
Tensor Flatten::forward(const Tensor& x) { return flatten(x, start_, end_); }

Tensor CrossEntropyLoss::forward(const Tensor& logits, const Tensor& target) {
  return cross_entropy(logits, target, options_);
}
Tensor MSELoss::forward(const Tensor& x, const Tensor& target) { return mse_loss(x, target, reduction_); }

}  // namespace ddp::nn
