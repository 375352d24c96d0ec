#include "ddp/nn/norm.h"

#include "ddp/autograd/functions.h"
#include "ddp/autograd/grad_mode.h"
#include "ddp/core/error.h"

namespace ddp::nn {

BatchNorm2d::BatchNorm2d(std::int64_t num_features, const BatchNorm2dOptions& options)
    : num_features_(num_features), options_(options) {
  DDP_CHECK(num_features >= 1, InvalidArgument, "BatchNorm2d: num_features is ", num_features,
            "; it must be at least 1");
  DDP_CHECK(options.momentum >= 0 && options.momentum <= 1, InvalidArgument, "BatchNorm2d: momentum is ",
            options.momentum, "; it must be in [0, 1]");
  DDP_CHECK(options.eps > 0, InvalidArgument, "BatchNorm2d: eps is ", options.eps, "; it must be above 0");
  const Dims sizes = {num_features};
  if (options.affine) {
    weight = register_parameter("weight", ones(sizes, {.dtype = options.dtype}));
    bias = register_parameter("bias", zeros(sizes, {.dtype = options.dtype}));
  }
  if (options.track_running_stats) {
    running_mean = register_buffer("running_mean", zeros(sizes, {.dtype = options.dtype}));
    running_var = register_buffer("running_var", ones(sizes, {.dtype = options.dtype}));
    num_batches_tracked = register_buffer("num_batches_tracked", zeros({}, {.dtype = DType::int64}));
  }
}

Tensor BatchNorm2d::forward(const Tensor& x) {
  DDP_CHECK(x.dim() == 4 && x.size(1) == num_features_, InvalidArgument, "BatchNorm2d: the input ", x.sizes(),
            " must be [N, C, H, W] with C = num_features = ", num_features_);
  const bool use_batch = is_training() || !options_.track_running_stats;
  Tensor y = batch_norm(x, running_mean, running_var, weight, bias, use_batch, options_.momentum, options_.eps);
  // After the call, so that an input it refuses does not count.
  if (is_training() && options_.track_running_stats) {
    if (!one_.defined() || one_.device() != num_batches_tracked.device()) {
      one_ = ones({}, num_batches_tracked.options());
    }
    num_batches_tracked.add_(one_);
  }
  return y;
}

LayerNorm::LayerNorm(const Dims& normalized, const LayerNormOptions& options)
    : normalized_(normalized), eps_(options.eps) {
  DDP_CHECK(!normalized.empty(), InvalidArgument, "LayerNorm: needs at least one size to normalise over");
  for (const std::int64_t size : normalized) {
    DDP_CHECK(size >= 1, InvalidArgument, "LayerNorm: sizes ", normalized, " must be at least 1");
  }
  DDP_CHECK(options.eps > 0, InvalidArgument, "LayerNorm: eps is ", options.eps, "; it must be above 0");
  if (!options.elementwise_affine) return;
  weight = register_parameter("weight", ones(normalized, {.dtype = options.dtype}));
  if (options.bias) bias = register_parameter("bias", zeros(normalized, {.dtype = options.dtype}));
}

Tensor LayerNorm::forward(const Tensor& x) {
  const std::size_t inner = normalized_.size();
  const Dims& sizes = x.sizes();
  DDP_CHECK(sizes.size() >= inner && std::equal(normalized_.begin(), normalized_.end(), sizes.end() - inner),
            InvalidArgument, "LayerNorm: the last sizes of the input ", sizes, " must be ", normalized_);
  return layer_norm(x, normalized_, weight, bias, eps_);
}

}  // namespace ddp::nn
