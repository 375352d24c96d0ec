#include "ddp/nn/linear.h"

#include <cmath>

#include "ddp/autograd/functions.h"
#include "ddp/core/error.h"
#include "ddp/nn/init.h"

namespace ddp::nn {

/// Initialisation: PyTorch, torch/nn/modules/linear.py, Linear.reset_parameters.
Linear::Linear(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options)
    : in_features_(in_features) {
  DDP_CHECK(in_features >= 1 && out_features >= 1, InvalidArgument, "Linear: in_features ", in_features,
            " and out_features ", out_features, " must be at least 1");
  weight = register_parameter("weight", empty({out_features, in_features}, {.dtype = options.dtype}));
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (!options.bias) return;
  bias = register_parameter("bias", empty({out_features}, {.dtype = options.dtype}));
  const double bound = 1.0 / std::sqrt(static_cast<double>(in_features));
  init::uniform_(bias, -bound, bound);
}

Tensor Linear::forward(const Tensor& x) {
  DDP_CHECK(x.dim() >= 1 && x.size(-1) == in_features_, InvalidArgument, "Linear: the last size of the input ",
            x.sizes(), " must be in_features = ", in_features_);
  return linear(x, weight, bias);
}

}  // namespace ddp::nn
