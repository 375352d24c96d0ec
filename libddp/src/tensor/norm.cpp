#include "tensor/norm.h"

#include <limits>
#include <string_view>

#include "tensor/backend/norm_backend.h"
#include "tensor/checks.h"
#include "tensor/copy.h"
#include "tensor/elementwise.h"

namespace ddp::raw {
namespace {

DType statistics_dtype(const Tensor& x) { return x.dtype() == DType::float64 ? DType::float64 : DType::float32; }
TensorOptions statistics_options(const Tensor& x) { return {statistics_dtype(x), x.device()}; }

// A tensor per channel or per row, in the dtype of statistics; undefined stays so.
Tensor parameter(std::string_view operation, std::string_view what, const Tensor& x, const Tensor& value,
                 const Dims& sizes) {
  if (!value.defined()) return value;
  check_same_device(operation, x, value);
  check_sizes(operation, what, value, sizes);
  DDP_CHECK(is_floating_point(value.dtype()), InvalidArgument, operation, ": ", what, " has dtype ", value.dtype(),
            "; expected floating point");
  const DType dtype = statistics_dtype(x);
  return contiguous(value.dtype() == dtype ? value : to(value, dtype));
}

Tensor needed(std::string_view operation, std::string_view what, const Tensor& x, const Tensor& value,
              const Dims& sizes) {
  check_defined(operation, what, value);
  return parameter(operation, what, x, value, sizes);
}

// Where a parameter's gradient is computed: its final place where that has the right dtype and layout.
Tensor gradient_place(const Into& into, const Dims& sizes, const TensorOptions& statistics) {
  const bool direct = into.out.defined() && !into.accumulate && into.out.is_contiguous() &&
                      into.out.dtype() == statistics.dtype && into.out.sizes() == sizes;
  return direct ? into.out : empty(sizes, statistics);
}

Tensor deliver(std::string_view operation, const Tensor& gradient, const Into& into, DType dtype) {
  DDP_CHECK(!into.accumulate || into.out.defined(), InvalidArgument, operation, ": accumulate needs `out`");
  if (!into.out.defined()) return gradient.dtype() == dtype ? gradient : to(gradient, dtype);
  check_sizes(operation, "out", into.out, gradient.sizes());
  if (into.out.is_same(gradient)) return into.out;
  if (into.accumulate) {
    axpy_(into.out, gradient.dtype() == into.out.dtype() ? gradient : to(gradient, into.out.dtype()), 1);
  } else {
    copy_(into.out, gradient);
  }
  return into.out;
}

Dims check_batch(std::string_view operation, const Tensor& x) {
  check_floating(operation, x);
  DDP_CHECK(x.dim() >= 2, InvalidArgument, operation, ": input ", x.sizes(), "; expected [N, C, ..]");
  return {x.size(1)};
}

// 1 / sqrt(variance + eps), for the few numbers there are, through the elementwise family.
Tensor inverse_deviation(const Tensor& variance, double eps) {
  return unary(Unary::reciprocal, unary(Unary::sqrt, binary_scalar(Binary::add, variance, eps)));
}

NormGrads batch_grad(std::string_view operation, const Tensor& grad, const Tensor& x, const Tensor& weight,
                     const Tensor& mean, const Tensor& invstd, bool training, const Into& weight_into,
                     const Into& bias_into) {
  const Dims channels{x.size(1)};
  check_same_kind(operation, grad, x);
  check_sizes(operation, "gradient", grad, x.sizes());
  const Tensor w = parameter(operation, "weight", x, weight, channels);
  const DType dtype = weight.defined() ? weight.dtype() : x.dtype();
  const Tensor weight_grad = gradient_place(weight_into, channels, statistics_options(x));
  const Tensor bias_grad = gradient_place(bias_into, channels, statistics_options(x));
  NormGrads grads{.x = empty(x.sizes(), x.options()), .weight = {}, .bias = {}};
  if (x.numel() == 0) {
    fill_(weight_grad, 0);
    fill_(bias_grad, 0);
  } else {
    norm_backend(x.device())
        .batch_norm_grad(contiguous(grad), contiguous(x), mean, invstd, w, training, grads.x, weight_grad, bias_grad);
  }
  if (weight.defined() || weight_into.out.defined()) grads.weight = deliver(operation, weight_grad, weight_into, dtype);
  grads.bias = deliver(operation, bias_grad, bias_into, dtype);
  return grads;
}

// Sizes before the normalised ones.
Dims check_layer(std::string_view operation, const Tensor& x, const Dims& normalized, const Tensor& weight) {
  check_floating(operation, x);
  const Dims& sizes = x.sizes();
  const bool fits = !normalized.empty() && normalized.size() <= sizes.size() &&
                    std::equal(normalized.begin(), normalized.end(), sizes.end() - normalized.size());
  DDP_CHECK(fits, InvalidArgument, operation, ": normalized sizes ", normalized, " are not the last of input ", sizes);
  if (weight.defined()) check_sizes(operation, "weight", weight, normalized);
  return Dims(std::span(sizes.begin(), sizes.size() - normalized.size()));
}

}  // namespace

NormResult batch_norm_train(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                            Tensor* unbiased_variance) {
  const Dims channels = check_batch("batch_norm", x);
  const Tensor w = parameter("batch_norm", "weight", x, weight, channels);
  const Tensor b = parameter("batch_norm", "bias", x, bias, channels);
  const std::int64_t count = x.size(1) == 0 ? 0 : x.numel() / x.size(1);
  DDP_CHECK(count != 1, InvalidArgument, "batch_norm: input ", x.sizes(),
            " has one value per channel; training needs more");
  const TensorOptions statistics = statistics_options(x);
  NormResult result{empty(x.sizes(), x.options()), empty(channels, statistics), {}};
  const Tensor variance = empty(channels, statistics);
  if (x.numel() == 0) {
    // The mean over nothing.
    fill_(result.mean, std::numeric_limits<double>::quiet_NaN());
    fill_(variance, std::numeric_limits<double>::quiet_NaN());
    result.invstd = clone(variance);
  } else {
    const Tensor input = contiguous(x);
    norm_backend(x.device()).batch_statistics(input, result.mean, variance);
    result.invstd = inverse_deviation(variance, eps);
    norm_backend(x.device()).batch_normalize(input, result.mean, result.invstd, w, b, result.y);
  }
  if (unbiased_variance != nullptr) {
    const double n = static_cast<double>(count);
    *unbiased_variance = binary_scalar(Binary::mul, variance, n / (n - 1));
  }
  return result;
}

Tensor batch_norm_eval(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                       const Tensor& variance, double eps) {
  const Dims channels = check_batch("batch_norm", x);
  const Tensor w = parameter("batch_norm", "weight", x, weight, channels);
  const Tensor b = parameter("batch_norm", "bias", x, bias, channels);
  const Tensor m = needed("batch_norm", "mean", x, mean, channels);
  const Tensor v = needed("batch_norm", "variance", x, variance, channels);
  const Tensor y = empty(x.sizes(), x.options());
  if (y.numel() != 0) {
    norm_backend(x.device()).batch_normalize(contiguous(x), m, inverse_deviation(v, eps), w, b, y);
  }
  return y;
}

NormGrads batch_norm_train_grad(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& mean,
                                const Tensor& invstd, const Into& weight_into, const Into& bias_into) {
  const Dims channels = check_batch("batch_norm_grad", x);
  return batch_grad("batch_norm_grad", grad, x, weight, needed("batch_norm_grad", "mean", x, mean, channels),
                    needed("batch_norm_grad", "invstd", x, invstd, channels), true, weight_into, bias_into);
}

NormGrads batch_norm_eval_grad(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& mean,
                               const Tensor& variance, double eps, const Into& weight_into, const Into& bias_into) {
  const Dims channels = check_batch("batch_norm_grad", x);
  const Tensor v = needed("batch_norm_grad", "variance", x, variance, channels);
  return batch_grad("batch_norm_grad", grad, x, weight, needed("batch_norm_grad", "mean", x, mean, channels),
                    inverse_deviation(v, eps), false, weight_into, bias_into);
}

NormResult layer_norm(const Tensor& x, const Dims& normalized, const Tensor& weight, const Tensor& bias, double eps) {
  const Dims leading = check_layer("layer_norm", x, normalized, weight);
  const Tensor w = parameter("layer_norm", "weight", x, weight, normalized);
  const Tensor b = parameter("layer_norm", "bias", x, bias, normalized);
  const TensorOptions statistics = statistics_options(x);
  const NormResult result{empty(x.sizes(), x.options()), empty(leading, statistics), empty(leading, statistics)};
  if (x.numel() != 0) {
    norm_backend(x.device()).layer_norm(contiguous(x), w, b, eps, result.y, result.mean, result.invstd);
  } else {  // rows without elements, if any
    fill_(result.mean, std::numeric_limits<double>::quiet_NaN());
    fill_(result.invstd, std::numeric_limits<double>::quiet_NaN());
  }
  return result;
}

NormGrads layer_norm_grad(const Tensor& grad, const Tensor& x, const Dims& normalized, const Tensor& weight,
                          const Tensor& mean, const Tensor& invstd, const Into& weight_into, const Into& bias_into) {
  const Dims leading = check_layer("layer_norm_grad", x, normalized, weight);
  check_same_kind("layer_norm_grad", grad, x);
  check_sizes("layer_norm_grad", "gradient", grad, x.sizes());
  const Tensor w = parameter("layer_norm_grad", "weight", x, weight, normalized);
  const Tensor m = needed("layer_norm_grad", "mean", x, mean, leading);
  const Tensor s = needed("layer_norm_grad", "invstd", x, invstd, leading);
  const DType dtype = weight.defined() ? weight.dtype() : x.dtype();
  const Tensor weight_grad = gradient_place(weight_into, normalized, statistics_options(x));
  const Tensor bias_grad = gradient_place(bias_into, normalized, statistics_options(x));
  NormGrads grads{.x = empty(x.sizes(), x.options()), .weight = {}, .bias = {}};
  if (x.numel() == 0) {
    fill_(weight_grad, 0);
    fill_(bias_grad, 0);
  } else {
    norm_backend(x.device()).layer_norm_grad(contiguous(grad), contiguous(x), w, m, s, grads.x, weight_grad, bias_grad);
  }
  if (weight.defined() || weight_into.out.defined()) {
    grads.weight = deliver("layer_norm_grad", weight_grad, weight_into, dtype);
  }
  grads.bias = deliver("layer_norm_grad", bias_grad, bias_into, dtype);
  return grads;
}

}  // namespace ddp::raw
