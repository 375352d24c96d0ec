#pragma once

#include <any>
#include <functional>
#include <string>
#include <vector>

#include "ddp/tensor/tensor.h"

/// Differentiable functions written by the user.
namespace ddp {

/// What forward leaves for backward. Confined to one forward/backward pair.
class FunctionContext {
 public:
  /// Keeps tensors; `saved()` in backward throws AutogradError if one was changed in place meanwhile.
  void save_for_backward(std::vector<Tensor> tensors);
  std::vector<Tensor> saved() const;
  /// Anything else.
  std::any data;
  /// In backward: whether input i needs a gradient.
  bool needs_input_grad(std::size_t i) const;

 private:
  friend struct FunctionAccess;
  std::vector<Tensor> pending_;
  std::any state_;
  std::vector<bool> needs_;
};

/// Runs `forward` outside the tape on the inputs and records one node for its results. `backward` gets the
/// results' gradients (undefined where none arrived) and returns one gradient per input, of the input's
/// sizes; undefined means none. A wrong count or size throws AutogradError that has `name`.
///
///     struct Square {
///       static std::vector<Tensor> forward(FunctionContext& ctx, const std::vector<Tensor>& in);
///       static std::vector<Tensor> backward(FunctionContext& ctx, const std::vector<Tensor>& grads);
///     };
///     Tensor y = ddp::apply_function<Square>("square", {x})[0];
std::vector<Tensor> apply_function(
    const std::string& name, const std::vector<Tensor>& inputs,
    const std::function<std::vector<Tensor>(FunctionContext&, const std::vector<Tensor>&)>& forward,
    const std::function<std::vector<Tensor>(FunctionContext&, const std::vector<Tensor>&)>& backward);

template <class F>
std::vector<Tensor> apply_function(const std::string& name, const std::vector<Tensor>& inputs) {
  return apply_function(name, inputs, &F::forward, &F::backward);
}

}  // namespace ddp
