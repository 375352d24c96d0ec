#include "tensor/conv.h"

#include <string_view>

#include "tensor/backend/conv_backend.h"
#include "tensor/checks.h"
#include "tensor/copy.h"

namespace ddp::raw {
namespace {

void check_params(std::string_view operation, const ConvParams& p) {
  const auto pair = [](Pair v) { return concat("(", v.h, ", ", v.w, ")"); };
  DDP_CHECK(p.stride.h >= 1 && p.stride.w >= 1, InvalidArgument, operation, ": stride ", pair(p.stride),
            "; allowed: 1 or more");
  DDP_CHECK(p.padding.h >= 0 && p.padding.w >= 0, InvalidArgument, operation, ": padding ", pair(p.padding),
            "; allowed: 0 or more");
  DDP_CHECK(p.dilation.h >= 1 && p.dilation.w >= 1, InvalidArgument, operation, ": dilation ", pair(p.dilation),
            "; allowed: 1 or more");
  DDP_CHECK(p.groups >= 1, InvalidArgument, operation, ": groups ", p.groups, "; allowed: 1 or more");
}

std::int64_t output_size(std::string_view operation, std::int64_t in, std::int64_t kernel, std::int64_t stride,
                         std::int64_t padding, std::int64_t dilation) {
  std::int64_t reach = 0;  // of the kernel, without its first element
  std::int64_t span = 0;   // of the input with its padding
  const bool fits = kernel >= 1 && !__builtin_mul_overflow(dilation, kernel - 1, &reach) &&
                    !__builtin_mul_overflow(padding, std::int64_t{2}, &span) &&
                    !__builtin_add_overflow(span, in, &span) && span > reach;
  DDP_CHECK(fits, InvalidArgument, operation, ": a kernel of size ", kernel, " with dilation ", dilation,
            " does not fit an input of size ", in, " with padding ", padding);
  return (span - reach - 1) / stride + 1;
}

// Sizes of the result for an input and a weight of these sizes; checks that they fit each other.
Dims output_sizes(std::string_view operation, const Dims& x, const Dims& weight, const ConvParams& p) {
  check_params(operation, p);
  DDP_CHECK(x.size() == 4 && weight.size() == 4, InvalidArgument, operation, ": input ", x, " and weight ", weight,
            "; expected [N, C, H, W] and [K, C/groups, R, S]");
  DDP_CHECK(x[1] == weight[1] * p.groups && weight[0] % p.groups == 0, InvalidArgument, operation, ": input ", x,
            ", weight ", weight, " and groups ", p.groups,
            " do not fit; C must be weight's second size times groups, and groups must divide K");
  return {x[0], weight[0], output_size(operation, x[2], weight[2], p.stride.h, p.padding.h, p.dilation.h),
          output_size(operation, x[3], weight[3], p.stride.w, p.padding.w, p.dilation.w)};
}

Tensor input_for(const Tensor& out, const Tensor& x) {
  return overlap(out, x) == Overlap::none ? contiguous(x) : clone(x);
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvParams& params) {
  check_same_kind("conv2d", x, weight);
  check_floating("conv2d", x);
  const Tensor out = empty(output_sizes("conv2d", x.sizes(), weight.sizes(), params), x.options());
  if (bias.defined()) {
    check_same_kind("conv2d", x, bias);
    check_sizes("conv2d", "bias", bias, {weight.size(0)});
  }
  if (out.numel() == 0) return out;
  if (weight.numel() == 0) {  // no input channels: sums over nothing
    if (bias.defined()) {
      copy_(out, view(contiguous(bias), {weight.size(0), 1, 1}));
    } else {
      fill_(out, 0);
    }
    return out;
  }
  conv_backend(x.device())
      .conv2d(contiguous(x), contiguous(weight), bias.defined() ? contiguous(bias) : bias, params, out);
  return out;
}

Tensor conv2d_input_grad(const Tensor& grad, const Tensor& weight, const Dims& input_sizes, const ConvParams& params) {
  check_same_kind("conv2d_input_grad", grad, weight);
  check_floating("conv2d_input_grad", grad);
  check_sizes("conv2d_input_grad", "gradient", grad,
              output_sizes("conv2d_input_grad", input_sizes, weight.sizes(), params));
  const Tensor out = empty(input_sizes, grad.options());
  if (out.numel() == 0) return out;
  if (grad.numel() == 0) {
    fill_(out, 0);
    return out;
  }
  conv_backend(grad.device()).conv2d_input_grad(contiguous(grad), contiguous(weight), params, out);
  return out;
}

Tensor conv2d_weight_grad(const Tensor& grad, const Tensor& x, const Dims& weight_sizes, const ConvParams& params,
                          const Tensor& out, bool accumulate) {
  check_same_kind("conv2d_weight_grad", grad, x);
  check_floating("conv2d_weight_grad", grad);
  DDP_CHECK(!accumulate || out.defined(), InvalidArgument, "conv2d_weight_grad: accumulate needs `out`");
  check_sizes("conv2d_weight_grad", "gradient", grad,
              output_sizes("conv2d_weight_grad", x.sizes(), weight_sizes, params));
  const Tensor y = result("conv2d_weight_grad", out, weight_sizes, x.options());
  if (y.numel() == 0) return y;
  if (grad.numel() == 0) {
    if (!accumulate) fill_(y, 0);
    return y;
  }
  conv_backend(x.device()).conv2d_weight_grad(input_for(y, grad), input_for(y, x), params, y, accumulate);
  return y;
}

Tensor conv2d_bias_grad(const Tensor& grad, const Tensor& out, bool accumulate) {
  check_floating("conv2d_bias_grad", grad);
  DDP_CHECK(!accumulate || out.defined(), InvalidArgument, "conv2d_bias_grad: accumulate needs `out`");
  DDP_CHECK(grad.dim() == 4, InvalidArgument, "conv2d_bias_grad: gradient ", grad.sizes(), "; expected [N, K, P, Q]");
  const Tensor y = result("conv2d_bias_grad", out, {grad.size(1)}, grad.options());
  if (y.numel() == 0) return y;
  if (grad.numel() == 0) {
    if (!accumulate) fill_(y, 0);
    return y;
  }
  conv_backend(grad.device()).conv2d_bias_grad(input_for(y, grad), y, accumulate);
  return y;
}

}  // namespace ddp::raw
