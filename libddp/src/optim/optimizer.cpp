#include "ddp/optim/optimizer.h"

#include "ddp/autograd/grad_mode.h"
#include "ddp/core/error.h"
#include "ddp/trace/recorder.h"
#include "optim/table.h"
#include "tensor/tensor_impl.h"

namespace ddp::optim {

Optimizer::Optimizer(std::string name, const std::vector<std::vector<Tensor>>& groups)
    : table_(std::make_unique<Table>(std::move(name), groups)) {
  for (const std::vector<Tensor>& group : groups) parameters_.insert(parameters_.end(), group.begin(), group.end());
}

Optimizer::~Optimizer() = default;

void Optimizer::zero_grad() {
  for (Tensor& tensor : parameters_) tensor.zero_grad();
}

std::vector<ParameterState> Optimizer::state() const { return table_->state(); }

void Optimizer::load_state(const std::vector<ParameterState>& state) { table_->load(state, state_names().size()); }

Tensor clip_grad_norm(const std::vector<Tensor>& parameters, double max_norm) {
  DDP_CHECK(max_norm > 0, InvalidArgument, "clip_grad_norm: max_norm is ", max_norm, "; it must be above 0");
  const NoGradGuard no_grad;
  const trace::ScopedSpan span(trace::SpanKind::optimizer, "clip_grad_norm");
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : parameters) {
    Tensor gradient = parameter.grad();
    if (gradient.defined()) gradients.push_back(std::move(gradient));
  }
  if (gradients.empty()) {
    const Device device = parameters.empty() ? Device::cpu() : parameters.front().device();
    return zeros({}, {.dtype = DType::float64, .device = device});
  }
  // Formula: PyTorch, torch/nn/utils/clip_grad.py. The norm is not read here: that would have to wait for the
  // device. So it is a change in place whether or not anything was scaled.
  Tensor norm = raw::total_norm(gradients);
  raw::clip_all_(gradients, norm, max_norm);
  for (const Tensor& gradient : gradients) gradient.impl()->storage()->bump_version();
  return norm;
}

}  // namespace ddp::optim
