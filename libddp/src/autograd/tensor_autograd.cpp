#include "autograd/accumulate_grad.h"
#include "autograd/engine.h"
#include "ddp/tensor/tensor.h"
#include "ddp/trace/device_span.h"

namespace ddp {

namespace {

void check_defined(const Tensor& tensor, const char* what) {
  DDP_CHECK(tensor.defined(), InvalidArgument, what, " of an undefined tensor");
}

}  // namespace

bool Tensor::requires_grad() const {
  check_defined(*this, "requires_grad");
  return impl_->requires_grad;
}

Tensor& Tensor::set_requires_grad(bool value) {
  check_defined(*this, "set_requires_grad");
  DDP_CHECK(is_leaf(), AutogradError, "set_requires_grad on a tensor of sizes ", sizes(), " that ",
            autograd::meta_of(*this)->node->name(), " made; only leaves can be switched, see detach()");
  DDP_CHECK(!value || is_floating_point(dtype()), AutogradError, "only floating-point tensors can require grad, not ",
            dtype());
  impl_->requires_grad = value;
  // Made now and not in the first forward, so that several threads may use the leaf at once.
  if (value) autograd::accumulator_of(*this);
  return *this;
}

bool Tensor::is_leaf() const {
  check_defined(*this, "is_leaf");
  const autograd::AutogradMeta* meta = autograd::meta_of(*this);
  return meta == nullptr || !meta->node;
}

Tensor Tensor::grad() const {
  check_defined(*this, "grad");
  const autograd::AccumulateGrad* accumulator = autograd::existing_accumulator(*this);
  return accumulator == nullptr ? Tensor() : accumulator->gradient();
}

void Tensor::set_grad(const Tensor& gradient) {
  check_defined(*this, "set_grad");
  if (!gradient.defined()) {
    zero_grad();
    return;
  }
  autograd::accumulator_of(*this)->assign(gradient);
}

void Tensor::zero_grad() {
  check_defined(*this, "zero_grad");
  if (autograd::AccumulateGrad* accumulator = autograd::existing_accumulator(*this)) accumulator->clear();
}

void Tensor::backward(const Tensor& gradient, bool retain_graph, std::source_location /*where*/) const {
  const trace::PhaseSpan span(trace::SpanKind::backward, defined() ? device() : Device::cpu());
  autograd::run_backward(*this, gradient, retain_graph);
}

}  // namespace ddp
