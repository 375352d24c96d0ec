#include "ddp/autograd/hooks.h"

#include <utility>

#include "autograd/accumulate_grad.h"

namespace ddp {

std::uint64_t register_gradient_hook(const Tensor& leaf, std::function<void(const Tensor& gradient)> hook) {
  return autograd::accumulator_of(leaf)->add_hook(
      [hook = std::move(hook)](autograd::AccumulateGrad& accumulator) { hook(accumulator.gradient()); });
}

void remove_gradient_hook(const Tensor& leaf, std::uint64_t id) {
  if (!leaf.defined()) return;
  if (autograd::AccumulateGrad* accumulator = autograd::existing_accumulator(leaf)) accumulator->remove_hook(id);
}

}  // namespace ddp
