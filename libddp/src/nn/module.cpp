#include "ddp/nn/module.h"

#include <algorithm>
#include <unordered_set>

#include "autograd/accumulate_grad.h"
#include "ddp/autograd/grad_mode.h"
#include "ddp/core/error.h"
#include "tensor/copy.h"

namespace ddp::nn {
namespace {

constexpr std::size_t kFew = 64;

/// The tensors of the list, each object once, under its first name.
std::vector<NamedTensor> without_repeats(const std::vector<NamedTensor>& all) {
  std::unordered_set<const TensorImpl*> seen;
  std::vector<NamedTensor> result;
  for (const NamedTensor& entry : all) {
    if (seen.insert(entry.second.impl().get()).second) result.push_back(entry);
  }
  return result;
}

std::vector<Tensor> tensors_of(const std::vector<NamedTensor>& named) {
  std::vector<Tensor> result;
  result.reserve(named.size());
  for (const NamedTensor& entry : named) result.push_back(entry.second);
  return result;
}

void check_can_move(const NamedTensor& entry) {
  const autograd::AccumulateGrad* accumulator = autograd::existing_accumulator(entry.second);
  if (accumulator == nullptr) return;
  DDP_CHECK(!accumulator->has_external_destination(), InvalidArgument, "Module::to: the gradient of '", entry.first,
            "' lives in a bucket; move the module before it is wrapped");
  DDP_CHECK(!accumulator->has_hooks(), InvalidArgument, "Module::to: '", entry.first,
            "' has gradient hooks, which would be lost; move the module before they are registered or it is wrapped");
}

/// Puts `moved` into the handle. The accumulator is made for one place and dtype, so it is dropped and made
/// anew by the next use; a gradient that is there goes along.
template <class Convert>
void swap_in(const Tensor& tensor, const Tensor& moved, const Convert& convert) {
  const autograd::AccumulateGrad* accumulator = autograd::existing_accumulator(tensor);
  const Tensor gradient = accumulator == nullptr ? Tensor() : accumulator->gradient();
  tensor.impl()->autograd = nullptr;
  tensor.impl()->replace(*moved.impl());
  if (gradient.defined()) Tensor(tensor).set_grad(convert(gradient));
}

}  // namespace

template <class Visit>
void Module::visit(const std::string& prefix, const Visit& visit) const {
  visit(prefix, *this);
  for (const auto& [name, child] : children_) child->visit(prefix + name + ".", visit);
}

std::vector<NamedTensor> Module::named_parameters() const {
  std::vector<NamedTensor> all;
  visit("", [&all](const std::string& prefix, const Module& module) {
    for (const auto& [name, tensor] : module.parameters_) all.emplace_back(prefix + name, tensor);
  });
  return without_repeats(all);
}

std::vector<NamedTensor> Module::named_buffers() const {
  std::vector<NamedTensor> all;
  visit("", [&all](const std::string& prefix, const Module& module) {
    for (const auto& [name, tensor] : module.buffers_) all.emplace_back(prefix + name, tensor);
  });
  return without_repeats(all);
}

// Without names: DDP asks for the parameters at every forward.
void Module::add_parameters(std::vector<Tensor>& all) const {
  for (const auto& [name, tensor] : parameters_) all.push_back(tensor);
  for (const auto& [name, child] : children_) child->add_parameters(all);
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> all;
  all.reserve(kFew);
  add_parameters(all);
  std::unordered_set<const TensorImpl*> seen;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto is_same = [&](const Tensor& other) { return other.is_same(all[i]); };
    const auto begin = all.begin();
    // A search through few costs less than a table.
    const bool repeated = all.size() > kFew ? !seen.insert(all[i].impl().get()).second
                                            : std::any_of(begin, begin + static_cast<std::ptrdiff_t>(kept), is_same);
    if (repeated) continue;
    if (kept != i) all[kept] = std::move(all[i]);
    ++kept;
  }
  all.resize(kept);
  return all;
}

std::vector<Tensor> Module::buffers() const { return tensors_of(named_buffers()); }

std::vector<std::pair<std::string, std::shared_ptr<Module>>> Module::named_children() const { return children_; }

template <class Convert>
void Module::convert(const Convert& convert) {
  const NoGradGuard no_grad;
  const std::vector<NamedTensor> all = without_repeats(state_dict());
  std::vector<Tensor> moved;
  for (const NamedTensor& entry : all) {
    moved.push_back(convert(entry.second.detach()));
    if (moved.back().defined()) check_can_move(entry);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (moved[i].defined()) swap_in(all[i].second, moved[i], convert);
  }
}

void Module::to(Device device) {
  convert([device](const Tensor& tensor) { return tensor.device() == device ? Tensor() : raw::to(tensor, device); });
}

void Module::to(DType dtype) {
  DDP_CHECK(is_floating_point(dtype), InvalidArgument, "Module::to: ", dtype, " is not a floating-point type");
  convert([dtype](const Tensor& tensor) {
    return tensor.dtype() == dtype || !is_floating_point(tensor.dtype()) ? Tensor() : raw::to(tensor, dtype);
  });
}

void Module::train(bool on) {
  training_ = on;
  for (const auto& [name, child] : children_) child->train(on);
}

void Module::zero_grad() {
  for (auto& [name, tensor] : parameters_) tensor.zero_grad();
  for (const auto& [name, child] : children_) child->zero_grad();
}

void Module::check_name(const std::string& name) const {
  DDP_CHECK(!name.empty(), InvalidArgument, "a module's parameter, buffer or part needs a name");
  DDP_CHECK(name.find('.') == std::string::npos, InvalidArgument, "the name '", name,
            "' has a dot; dots separate the names of nested modules");
  const auto is_name = [&name](const auto& entry) { return entry.first == name; };
  DDP_CHECK(std::none_of(parameters_.begin(), parameters_.end(), is_name) &&
                std::none_of(buffers_.begin(), buffers_.end(), is_name) &&
                std::none_of(children_.begin(), children_.end(), is_name),
            InvalidArgument, "the name '", name, "' is registered already in this module");
}

Tensor Module::register_parameter(const std::string& name, Tensor tensor, bool requires_grad) {
  check_name(name);
  if (!tensor.defined()) return tensor;
  DDP_CHECK(tensor.is_leaf(), InvalidArgument, "parameter '", name,
            "' is the result of a recorded function; register a tensor that is none (detach it)");
  tensor.set_requires_grad(requires_grad);
  parameters_.emplace_back(name, tensor);
  return tensor;
}

Tensor Module::register_buffer(const std::string& name, Tensor tensor) {
  check_name(name);
  if (tensor.defined()) buffers_.emplace_back(name, tensor);
  return tensor;
}

void Module::add_child(const std::string& name, std::shared_ptr<Module> module) {
  check_name(name);
  DDP_CHECK(module != nullptr, InvalidArgument, "the module '", name, "' is null");
  module->visit("", [this, &name](const std::string&, const Module& inner) {
    DDP_CHECK(&inner != this, InvalidArgument, "the module '", name, "' contains the module it would be part of");
  });
  children_.emplace_back(name, std::move(module));
}

StateDict Module::state_dict() const {
  StateDict result;
  visit("", [&result](const std::string& prefix, const Module& module) {
    for (const auto& [name, tensor] : module.parameters_) result.emplace_back(prefix + name, tensor);
    for (const auto& [name, tensor] : module.buffers_) result.emplace_back(prefix + name, tensor);
  });
  return result;
}

void Sequential::push_back(std::shared_ptr<UnaryModule> module) {
  register_module(std::to_string(modules_.size()), module);
  modules_.push_back(std::move(module));
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor result = x;
  for (const auto& module : modules_) result = module->forward(result);
  return result;
}

}  // namespace ddp::nn
