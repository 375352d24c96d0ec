#include "tensor/norm.h"

#include "autograd/functions/common.h"
#include "ddp/autograd/grad_mode.h"
#include "tensor/copy.h"

namespace ddp {

namespace autograd {
namespace {

/// Edges x, weight, bias.
class NormNode : public Node {
 public:
  NormNode(const Tensor& x, const Tensor& weight, const Tensor& bias) : Node(x.device()), x_(x), weight_(weight) {
    add_edge(x);
    add_edge(weight);
    add_edge(bias);
  }
  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) final {
    const auto into = [this](std::size_t i) {
      Destination place = destination(i);
      return raw::Into{std::move(place.tensor), place.accumulate};
    };
    raw::NormGrads found = gradients(grads[0], x_.get(name()), weight_.get(name()), into(1), into(2));
    if (needs_input_grad(0)) inputs[0] = std::move(found.x);
    if (needs_input_grad(1)) inputs[1] = std::move(found.weight);
    if (needs_input_grad(2)) inputs[2] = std::move(found.bias);
  }
  void release_saved() override {
    x_.release();
    weight_.release();
  }

 protected:
  virtual raw::NormGrads gradients(const Tensor& grad, const Tensor& x, const Tensor& weight,
                                   const raw::Into& weight_into, const raw::Into& bias_into) = 0;

 private:
  SavedTensor x_;
  SavedTensor weight_;
};

class BatchNormNode final : public NormNode {
 public:
  /// Training: mean and 1/deviation of the batch; else the running mean and variance.
  BatchNormNode(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& first, const Tensor& second,
                bool training, double eps)
      : NormNode(x, weight, bias), first_(first), second_(second), training_(training), eps_(eps) {}
  std::string_view name() const override { return "batch_norm"; }
  void release_saved() override {
    NormNode::release_saved();
    first_.release();
    second_.release();
  }

 protected:
  raw::NormGrads gradients(const Tensor& grad, const Tensor& x, const Tensor& weight, const raw::Into& weight_into,
                           const raw::Into& bias_into) override {
    const Tensor& first = first_.get(name());
    const Tensor& second = second_.get(name());
    if (training_) return raw::batch_norm_train_grad(grad, x, weight, first, second, weight_into, bias_into);
    return raw::batch_norm_eval_grad(grad, x, weight, first, second, eps_, weight_into, bias_into);
  }

 private:
  SavedTensor first_;
  SavedTensor second_;
  bool training_;
  double eps_;
};

class LayerNormNode final : public NormNode {
 public:
  LayerNormNode(const Tensor& x, const Dims& normalized, const Tensor& weight, const Tensor& bias,
                const raw::NormResult& forward)
      : NormNode(x, weight, bias), normalized_(normalized), mean_(forward.mean), invstd_(forward.invstd) {}
  std::string_view name() const override { return "layer_norm"; }
  void release_saved() override {
    NormNode::release_saved();
    mean_.release();
    invstd_.release();
  }

 protected:
  raw::NormGrads gradients(const Tensor& grad, const Tensor& x, const Tensor& weight, const raw::Into& weight_into,
                           const raw::Into& bias_into) override {
    return raw::layer_norm_grad(grad, x, normalized_, weight, mean_.get(name()), invstd_.get(name()), weight_into,
                                bias_into);
  }

 private:
  Dims normalized_;
  SavedTensor mean_;
  SavedTensor invstd_;
};

/// running = (1 - momentum) * running + momentum * batch.
void update_running(Tensor running, const Tensor& batch, double momentum) {
  if (!running.defined()) return;
  const NoGradGuard no_grad;
  running.mul_(1.0 - momentum);
  running.add_(batch.dtype() == running.dtype() ? batch : raw::to(batch, running.dtype()), momentum);
}

}  // namespace
}  // namespace autograd

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                  const Tensor& bias, bool training, double momentum, double eps) {
  const bool record = autograd::needs_graph({&x, &weight, &bias});
  if (!training) {
    DDP_CHECK(running_mean.defined() && running_var.defined(), InvalidArgument,
              "batch_norm with training = false needs running_mean and running_var");
    Tensor y = raw::batch_norm_eval(x, weight, bias, running_mean, running_var, eps);
    if (record) {
      autograd::set_history(
          y, make_intrusive<autograd::BatchNormNode>(x, weight, bias, running_mean, running_var, false, eps));
    }
    return y;
  }
  Tensor unbiased;
  const raw::NormResult result =
      raw::batch_norm_train(x, weight, bias, eps, running_var.defined() ? &unbiased : nullptr);
  if (x.numel() > 0) {  // an empty batch has no statistics: NaN would stay in the running average for ever
    autograd::update_running(running_mean, result.mean, momentum);
    autograd::update_running(running_var, unbiased, momentum);
  }
  if (record) {
    autograd::set_history(
        result.y, make_intrusive<autograd::BatchNormNode>(x, weight, bias, result.mean, result.invstd, true, eps));
  }
  return result.y;
}

Tensor layer_norm(const Tensor& x, const Dims& normalized, const Tensor& weight, const Tensor& bias, double eps) {
  const raw::NormResult result = raw::layer_norm(x, normalized, weight, bias, eps);
  if (autograd::needs_graph({&x, &weight, &bias})) {
    autograd::set_history(result.y, make_intrusive<autograd::LayerNormNode>(x, normalized, weight, bias, result));
  }
  return result.y;
}

}  // namespace ddp
