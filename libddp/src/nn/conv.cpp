#include "ddp/nn/conv.h"

#include <cmath>

#include "ddp/core/error.h"
#include "ddp/nn/init.h"

namespace ddp::nn {

/// Initialisation: PyTorch, torch/nn/modules/conv.py, _ConvNd.reset_parameters.
Conv2d::Conv2d(std::int64_t in_channels, std::int64_t out_channels, Size2 kernel, const Conv2dOptions& options)
    : in_channels_(in_channels), options_{options.stride, options.padding, options.dilation, options.groups} {
  DDP_CHECK(in_channels >= 1 && out_channels >= 1, InvalidArgument, "Conv2d: in_channels ", in_channels,
            " and out_channels ", out_channels, " must be at least 1");
  DDP_CHECK(options.groups >= 1 && in_channels % options.groups == 0 && out_channels % options.groups == 0,
            InvalidArgument, "Conv2d: groups ", options.groups, " must divide in_channels ", in_channels,
            " and out_channels ", out_channels);
  DDP_CHECK(kernel.h >= 1 && kernel.w >= 1, InvalidArgument, "Conv2d: kernel ", kernel.h, "x", kernel.w,
            " must be at least 1x1");
  DDP_CHECK(options.stride.h >= 1 && options.stride.w >= 1 && options.dilation.h >= 1 && options.dilation.w >= 1 &&
                options.padding.h >= 0 && options.padding.w >= 0,
            InvalidArgument, "Conv2d: stride ", options.stride.h, "x", options.stride.w, " and dilation ",
            options.dilation.h, "x", options.dilation.w, " must be at least 1, padding ", options.padding.h, "x",
            options.padding.w, " at least 0");
  const Dims sizes = {out_channels, in_channels / options.groups, kernel.h, kernel.w};
  weight = register_parameter("weight", empty(sizes, {.dtype = options.dtype}));
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (!options.bias) return;
  bias = register_parameter("bias", empty({out_channels}, {.dtype = options.dtype}));
  const double bound = 1.0 / std::sqrt(static_cast<double>(init::fans_of(weight).in));
  init::uniform_(bias, -bound, bound);
}

Tensor Conv2d::forward(const Tensor& x) {
  DDP_CHECK(x.dim() == 4 && x.size(1) == in_channels_, InvalidArgument, "Conv2d: the input ", x.sizes(),
            " must be [N, C, H, W] with C = in_channels = ", in_channels_);
  return conv2d(x, weight, bias, options_);
}

}  // namespace ddp::nn
