#include "ddp/nn/init.h"

#include <cmath>

#include "ddp/autograd/grad_mode.h"
#include "ddp/core/error.h"
#include "tensor/loss.h"
#include "tensor/tensor_impl.h"

/// Formulas: PyTorch, torch/nn/init.py (_calculate_fan_in_and_fan_out, calculate_gain, kaiming_*, xavier_*).
namespace ddp::nn::init {
namespace {

void check(const char* name, const Tensor& tensor) {
  DDP_CHECK(tensor.defined() && is_floating_point(tensor.dtype()), InvalidArgument, "init::", name, ": ",
            tensor.defined() ? concat("a tensor of ", tensor.dtype(), " cannot be filled; floating point is needed")
                             : std::string("the tensor is undefined"));
}

Generator& pick(const Tensor& tensor, Generator* generator) {
  return generator != nullptr ? *generator : default_generator(tensor.device());
}

/// The draws fill row-major memory; another layout gets a copy, so that the numbers do not depend on strides.
template <class Fill>
void fill(const Tensor& tensor, const Fill& draw) {
  const NoGradGuard no_grad;
  if (tensor.is_contiguous()) {
    draw(tensor.detach());
    tensor.impl()->storage()->bump_version();
  } else {
    const Tensor values = empty(tensor.sizes(), tensor.options());
    draw(values);
    Tensor(tensor).copy_(values);
  }
}

double fan_of(const Tensor& tensor, FanMode mode) {
  const Fans fans = fans_of(tensor);
  return static_cast<double>(mode == FanMode::fan_in ? fans.in : fans.out);
}

double kaiming_gain(double a) { return std::sqrt(2.0 / (1.0 + a * a)); }

}  // namespace

void uniform_(const Tensor& tensor, double low, double high, Generator* generator) {
  check("uniform_", tensor);
  DDP_CHECK(low <= high, InvalidArgument, "init::uniform_: low ", low, " is above high ", high);
  fill(tensor, [&](const Tensor& x) { raw::uniform_(x, low, high, pick(tensor, generator)); });
}

void normal_(const Tensor& tensor, double mean, double deviation, Generator* generator) {
  check("normal_", tensor);
  DDP_CHECK(deviation >= 0, InvalidArgument, "init::normal_: deviation ", deviation, " is negative");
  fill(tensor, [&](const Tensor& x) { raw::normal_(x, mean, deviation, pick(tensor, generator)); });
}

void constant_(const Tensor& tensor, double value) {
  check("constant_", tensor);
  const NoGradGuard no_grad;
  Tensor(tensor).fill_(value);
}

Fans fans_of(const Tensor& tensor) {
  const Dims& sizes = tensor.sizes();
  DDP_CHECK(sizes.size() >= 2, InvalidArgument, "init: fan in and fan out need at least 2 dimensions; the tensor is ",
            sizes);
  std::int64_t area = 1;
  for (std::size_t i = 2; i < sizes.size(); ++i) area *= sizes[i];
  return {.in = sizes[1] * area, .out = sizes[0] * area};
}

void kaiming_uniform_(const Tensor& tensor, double a, FanMode mode, Generator* generator) {
  check("kaiming_uniform_", tensor);
  if (tensor.numel() == 0) return;
  const double bound = kaiming_gain(a) * std::sqrt(3.0 / fan_of(tensor, mode));
  uniform_(tensor, -bound, bound, generator);
}

void kaiming_normal_(const Tensor& tensor, double a, FanMode mode, Generator* generator) {
  check("kaiming_normal_", tensor);
  if (tensor.numel() == 0) return;
  normal_(tensor, 0, kaiming_gain(a) / std::sqrt(fan_of(tensor, mode)), generator);
}

void xavier_uniform_(const Tensor& tensor, double gain, Generator* generator) {
  check("xavier_uniform_", tensor);
  if (tensor.numel() == 0) return;
  const Fans fans = fans_of(tensor);
  const double bound = gain * std::sqrt(6.0 / static_cast<double>(fans.in + fans.out));
  uniform_(tensor, -bound, bound, generator);
}

void xavier_normal_(const Tensor& tensor, double gain, Generator* generator) {
  check("xavier_normal_", tensor);
  if (tensor.numel() == 0) return;
  const Fans fans = fans_of(tensor);
  normal_(tensor, 0, gain * std::sqrt(2.0 / static_cast<double>(fans.in + fans.out)), generator);
}

}  // namespace ddp::nn::init
