#include "autograd/functions/common.h"
#include "tensor/elementwise.h"

namespace ddp {

namespace autograd {
namespace {

/// A function of one element whose gradient needs its argument or its result.
class UnaryNode final : public Node {
 public:
  UnaryNode(std::string_view name, raw::UnaryGrad gradient, const Tensor& x, const Tensor& saved)
      : Node(x.device()), name_(name), gradient_(gradient), saved_(saved) {
    add_edge(x);
  }
  std::string_view name() const override { return name_; }
  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) override {
    inputs[0] = raw::unary_grad(gradient_, grads[0], saved_.get(name_));
  }
  void release_saved() override { saved_.release(); }

 private:
  std::string_view name_;
  raw::UnaryGrad gradient_;
  SavedTensor saved_;
};

enum class Saves : std::uint8_t { argument, result };

Tensor unary(std::string_view name, raw::Unary op, raw::UnaryGrad gradient, Saves saves, const Tensor& x) {
  Tensor y = raw::unary(op, x);
  if (needs_graph({&x})) {
    set_history(y, make_intrusive<UnaryNode>(name, gradient, x, saves == Saves::result ? y : x));
  }
  return y;
}

}  // namespace
}  // namespace autograd

using autograd::Saves;
using raw::Unary;
using raw::UnaryGrad;

Tensor relu(const Tensor& x) { return autograd::unary("relu", Unary::relu, UnaryGrad::relu, Saves::result, x); }
Tensor gelu(const Tensor& x) { return autograd::unary("gelu", Unary::gelu, UnaryGrad::gelu, Saves::argument, x); }
Tensor sigmoid(const Tensor& x) {
  return autograd::unary("sigmoid", Unary::sigmoid, UnaryGrad::sigmoid, Saves::result, x);
}
Tensor tanh(const Tensor& x) { return autograd::unary("tanh", Unary::tanh, UnaryGrad::tanh, Saves::result, x); }
Tensor exp(const Tensor& x) { return autograd::unary("exp", Unary::exp, UnaryGrad::exp, Saves::result, x); }
Tensor log(const Tensor& x) { return autograd::unary("log", Unary::log, UnaryGrad::log, Saves::argument, x); }
Tensor sqrt(const Tensor& x) { return autograd::unary("sqrt", Unary::sqrt, UnaryGrad::sqrt, Saves::result, x); }

}  // namespace ddp
