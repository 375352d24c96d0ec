#include "tensor/conv.h"

#include "autograd/functions/common.h"

namespace ddp {

namespace autograd {
namespace {

raw::Pair pair_of(Size2 size) { return {size.h, size.w}; }

raw::PoolParams pool_params(Size2 kernel, const Pool2dOptions& options) {
  raw::PoolParams params;
  params.kernel = pair_of(kernel);
  params.stride = {options.stride.h == 0 ? kernel.h : options.stride.h,
                   options.stride.w == 0 ? kernel.w : options.stride.w};
  params.padding = pair_of(options.padding);
  params.count_include_pad = options.count_include_pad;
  return params;
}

class Conv2dNode final : public Node {
 public:
  Conv2dNode(const Tensor& x, const Tensor& weight, const Tensor& bias, const raw::ConvParams& params)
      : Node(x.device()), x_sizes_(x.sizes()), weight_sizes_(weight.sizes()), params_(params) {
    add_edge(x);
    add_edge(weight);
    add_edge(bias);
    x_ = save_if(needs_input_grad(1), x);
    weight_ = save_if(needs_input_grad(0), weight);
  }
  std::string_view name() const override { return "conv2d"; }
  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) override {
    const Tensor& grad = grads[0];
    if (needs_input_grad(2)) {
      const Destination into = destination(2);
      inputs[2] = raw::conv2d_bias_grad(grad, into.tensor, into.accumulate);
    }
    if (needs_input_grad(1)) {
      const Destination into = destination(1);
      inputs[1] = raw::conv2d_weight_grad(grad, x_.get(name()), weight_sizes_, params_, into.tensor, into.accumulate);
    }
    if (needs_input_grad(0)) inputs[0] = raw::conv2d_input_grad(grad, weight_.get(name()), x_sizes_, params_);
  }
  void release_saved() override {
    x_.release();
    weight_.release();
  }

 private:
  Dims x_sizes_;
  Dims weight_sizes_;
  raw::ConvParams params_;
  SavedTensor x_;
  SavedTensor weight_;
};

class MaxPool2dNode final : public Node {
 public:
  MaxPool2dNode(const Tensor& x, const Tensor& indices, const raw::PoolParams& params)
      : Node(x.device()), sizes_(x.sizes()), params_(params), indices_(indices) {
    add_edge(x);
  }
  std::string_view name() const override { return "max_pool2d"; }
  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) override {
    inputs[0] = raw::max_pool2d_grad(grads[0], indices_.get(name()), sizes_, params_);
  }
  void release_saved() override { indices_.release(); }

 private:
  Dims sizes_;
  raw::PoolParams params_;
  SavedTensor indices_;
};

}  // namespace
}  // namespace autograd

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options) {
  const raw::ConvParams params{autograd::pair_of(options.stride), autograd::pair_of(options.padding),
                               autograd::pair_of(options.dilation), options.groups};
  Tensor y = raw::conv2d(x, weight, bias, params);
  if (autograd::needs_graph({&x, &weight, &bias})) {
    autograd::set_history(y, make_intrusive<autograd::Conv2dNode>(x, weight, bias, params));
  }
  return y;
}

Tensor max_pool2d(const Tensor& x, Size2 kernel, const Pool2dOptions& options) {
  const raw::PoolParams params = autograd::pool_params(kernel, options);
  raw::MaxPoolResult found = raw::max_pool2d(x, params);
  if (autograd::needs_graph({&x})) {
    autograd::set_history(found.values, make_intrusive<autograd::MaxPool2dNode>(x, found.indices, params));
  }
  return std::move(found.values);
}

Tensor avg_pool2d(const Tensor& x, Size2 kernel, const Pool2dOptions& options) {
  const raw::PoolParams params = autograd::pool_params(kernel, options);
  return autograd::record(raw::avg_pool2d(x, params), x, "avg_pool2d", [sizes = x.sizes(), params](const Tensor& grad) {
    return raw::avg_pool2d_grad(grad, sizes, params);
  });
}

Tensor adaptive_avg_pool2d(const Tensor& x, Size2 output) {
  return autograd::record(
      raw::adaptive_avg_pool2d(x, autograd::pair_of(output)), x, "adaptive_avg_pool2d",
      [sizes = x.sizes()](const Tensor& grad) { return raw::adaptive_avg_pool2d_grad(grad, sizes); });
}

}  // namespace ddp
