#include "autograd/functions/common.h"
#include "tensor/elementwise.h"
#include "tensor/loss.h"

namespace ddp {

namespace autograd {
namespace {

class DropoutNode final : public Node {
 public:
  DropoutNode(const Tensor& x, const Tensor& mask, double p) : Node(x.device()), mask_(mask), p_(p) { add_edge(x); }
  std::string_view name() const override { return "dropout"; }
  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) override {
    inputs[0] = raw::dropout_grad(grads[0], mask_.get(name()), p_);
  }
  void release_saved() override { mask_.release(); }

 private:
  SavedTensor mask_;
  double p_;
};

class EmbeddingNode final : public Node {
 public:
  EmbeddingNode(const Tensor& index, const Tensor& weight)
      : Node(weight.device()), index_(index), sizes_(weight.sizes()) {
    add_edge(weight);
  }
  std::string_view name() const override { return "embedding"; }
  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) override {
    const Destination into = destination(0);
    inputs[0] = raw::embedding_grad(grads[0], index_.get(name()), sizes_, into.tensor, into.accumulate);
  }
  void release_saved() override { index_.release(); }

 private:
  SavedTensor index_;
  Dims sizes_;
};

}  // namespace
}  // namespace autograd

Tensor dropout(const Tensor& x, double p, bool training, Generator* generator) {
  DDP_CHECK(p >= 0 && p <= 1, InvalidArgument, "dropout probability is ", p, "; allowed is [0, 1]");
  if (!training || p == 0) return x;
  if (p == 1) {  // 1/(1-p) is infinite
    return autograd::record(zeros(x.sizes(), x.options()), x, "dropout",
                            [](const Tensor& grad) { return zeros(grad.sizes(), grad.options()); });
  }
  raw::DropoutResult result = raw::dropout(x, p, generator != nullptr ? *generator : default_generator(x.device()));
  if (autograd::needs_graph({&x})) {
    autograd::set_history(result.y, make_intrusive<autograd::DropoutNode>(x, result.mask, p));
  }
  return std::move(result.y);
}

Tensor embedding(const Tensor& index, const Tensor& weight) {
  Tensor y = raw::embedding(weight, index);
  if (autograd::needs_graph({&weight})) {
    autograd::set_history(y, make_intrusive<autograd::EmbeddingNode>(index, weight));
  }
  return y;
}

}  // namespace ddp
