#pragma once

#include <string_view>
#include <utility>

#include "autograd/node.h"
#include "ddp/autograd/functions.h"
#include "tensor/reduce.h"

/// What the files of this folder share. Each function computes its result with raw operations and, when a
/// graph is wanted, makes a node, adds one edge for each input, and then calls `set_history`.
namespace ddp::autograd {

/// Node of a function with one tensor input and nothing but a formula for its gradient.
template <class Formula>
class FormulaNode final : public Node {
 public:
  FormulaNode(Device device, std::string_view name, Formula formula)
      : Node(device), name_(name), formula_(std::move(formula)) {}
  std::string_view name() const override { return name_; }
  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) override {
    inputs[0] = formula_(std::move(grads[0]));
  }

 private:
  std::string_view name_;
  Formula formula_;
};

/// Records `formula` (gradient of the result -> gradient of the input; it must keep no tensors) for `result`,
/// a handle that nobody else has. `name` is a literal.
template <class Formula>
Tensor record(Tensor result, const Tensor& input, std::string_view name, Formula formula) {
  if (needs_graph({&input})) {
    auto node = make_intrusive<FormulaNode<Formula>>(result.device(), name, std::move(formula));
    node->add_edge(input);
    set_history(result, node);
  }
  return result;
}

/// Keeps a tensor when `needed`.
inline SavedTensor save_if(bool needed, const Tensor& tensor) { return needed ? SavedTensor(tensor) : SavedTensor(); }

/// The sum of `grad` over what was broadcast from `sizes`, written into `into` where it is defined and there is
/// anything to sum; `grad` itself where there is nothing.
inline Tensor unbroadcast(Tensor grad, const Dims& sizes, const Destination& into = {}) {
  if (grad.sizes() == sizes) return grad;
  return raw::sum_to(grad, sizes, into.tensor, into.accumulate);
}

}  // namespace ddp::autograd
