#include "tensor/loss.h"

#include "autograd/functions/common.h"
#include "tensor/elementwise.h"

namespace ddp {

namespace autograd {
namespace {

raw::Reduction raw_of(Reduction reduction) {
  return reduction == Reduction::mean ? raw::Reduction::mean : raw::Reduction::sum;
}

class SoftmaxNode final : public Node {
 public:
  SoftmaxNode(const Tensor& x, const Tensor& y, std::int64_t dim, bool logarithm)
      : Node(x.device()), y_(y), dim_(dim), logarithm_(logarithm) {
    add_edge(x);
  }
  std::string_view name() const override { return logarithm_ ? "log_softmax" : "softmax"; }
  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) override {
    const Tensor& y = y_.get(name());
    inputs[0] = logarithm_ ? raw::log_softmax_grad(grads[0], y, dim_) : raw::softmax_grad(grads[0], y, dim_);
  }
  void release_saved() override { y_.release(); }

 private:
  SavedTensor y_;
  std::int64_t dim_;
  bool logarithm_;
};

class CrossEntropyNode final : public Node {
 public:
  CrossEntropyNode(const Tensor& logits, const Tensor& log_probs, const Tensor& target,
                   const CrossEntropyOptions& options)
      : Node(logits.device()), log_probs_(log_probs), target_(target), options_(options) {
    add_edge(logits);
  }
  std::string_view name() const override { return "cross_entropy"; }
  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) override {
    inputs[0] = raw::cross_entropy_grad(grads[0], log_probs_.get(name()), target_.get(name()),
                                        raw_of(options_.reduction), options_.label_smoothing);
  }
  void release_saved() override {
    log_probs_.release();
    target_.release();
  }

 private:
  SavedTensor log_probs_;
  SavedTensor target_;
  CrossEntropyOptions options_;
};

class MseLossNode final : public Node {
 public:
  MseLossNode(const Tensor& x, const Tensor& target, Reduction reduction)
      : Node(x.device()), x_(x), target_(target), reduction_(reduction) {
    add_edge(x);
    add_edge(target);
  }
  std::string_view name() const override { return "mse_loss"; }
  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) override {
    Tensor grad = raw::mse_loss_grad(grads[0], x_.get(name()), target_.get(name()), raw_of(reduction_));
    if (needs_input_grad(1)) inputs[1] = raw::unary(raw::Unary::neg, grad);
    if (needs_input_grad(0)) inputs[0] = std::move(grad);
  }
  void release_saved() override {
    x_.release();
    target_.release();
  }

 private:
  SavedTensor x_;
  SavedTensor target_;
  Reduction reduction_;
};

}  // namespace
}  // namespace autograd

Tensor softmax(const Tensor& x, std::int64_t dim) {
  Tensor y = raw::softmax(x, dim);
  if (autograd::needs_graph({&x})) {
    autograd::set_history(y, make_intrusive<autograd::SoftmaxNode>(x, y, dim, false));
  }
  return y;
}

Tensor log_softmax(const Tensor& x, std::int64_t dim) {
  Tensor y = raw::log_softmax(x, dim);
  if (autograd::needs_graph({&x})) {
    autograd::set_history(y, make_intrusive<autograd::SoftmaxNode>(x, y, dim, true));
  }
  return y;
}

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options) {
  raw::CrossEntropyResult result =
      raw::cross_entropy(logits, target, autograd::raw_of(options.reduction), options.label_smoothing);
  if (autograd::needs_graph({&logits})) {
    autograd::set_history(result.loss,
                          make_intrusive<autograd::CrossEntropyNode>(logits, result.log_probs, target, options));
  }
  return std::move(result.loss);
}

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  Tensor loss = raw::mse_loss(x, target, autograd::raw_of(reduction));
  if (autograd::needs_graph({&x, &target})) {
    autograd::set_history(loss, make_intrusive<autograd::MseLossNode>(x, target, reduction));
  }
  return loss;
}

Tensor count_correct(const Tensor& logits, const Tensor& target) { return raw::count_correct(logits, target); }

}  // namespace ddp
