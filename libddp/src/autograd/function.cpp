#include "ddp/autograd/function.h"

#include <memory>
#include <utility>

#include "autograd/node.h"
#include "core/thread_state.h"
#include "ddp/autograd/grad_mode.h"

namespace ddp {

namespace {

/// What a FunctionContext holds once forward is over.
struct SavedList {
  std::string name;
  std::vector<autograd::SavedTensor> tensors;
};
using SavedListPtr = std::shared_ptr<SavedList>;

}  // namespace

struct FunctionAccess {
  static void set_needs(FunctionContext& context, std::vector<bool> needs) { context.needs_ = std::move(needs); }
  /// Turns the tensors that forward saved into ones with a version check; true when there are any.
  static bool seal(FunctionContext& context, const std::string& name) {
    auto list = std::make_shared<SavedList>();
    list->name = name;
    for (const Tensor& tensor : context.pending_) list->tensors.emplace_back(tensor);
    context.pending_.clear();
    const bool any = !list->tensors.empty() || context.data.has_value();
    context.state_ = std::move(list);
    return any;
  }
  static void release(FunctionContext& context) {
    context.state_.reset();
    context.data.reset();
  }
};

void FunctionContext::save_for_backward(std::vector<Tensor> tensors) { pending_ = std::move(tensors); }

std::vector<Tensor> FunctionContext::saved() const {
  const auto* list = std::any_cast<SavedListPtr>(&state_);
  if (list == nullptr) return pending_;
  std::vector<Tensor> tensors;
  tensors.reserve((*list)->tensors.size());
  for (const autograd::SavedTensor& tensor : (*list)->tensors) tensors.push_back(tensor.get((*list)->name));
  return tensors;
}

bool FunctionContext::needs_input_grad(std::size_t i) const {
  DDP_CHECK(i < needs_.size(), InvalidArgument, "needs_input_grad(", i, "): the function has ", needs_.size(),
            " inputs");
  return needs_[i];
}

namespace {

using Body = std::function<std::vector<Tensor>(FunctionContext&, const std::vector<Tensor>&)>;

class FunctionNode final : public autograd::Node {
 public:
  FunctionNode(Device device, std::string name, Body backward)
      : Node(device), name_(std::move(name)), backward_(std::move(backward)) {}

  std::string_view name() const override { return name_; }

  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) override {
    DDP_CHECK(!released_, AutogradError, "backward a second time through ", name_,
              ": what it saved was freed by the first backward; pass retain_graph = true to that one");
    // One gradient for each tensor that forward returned, also for those that have none (whole numbers).
    std::vector<Tensor> all(outputs_.size());
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      if (outputs_[i] >= 0) all[i] = std::move(grads[static_cast<std::size_t>(outputs_[i])]);
    }
    std::vector<Tensor> results = backward_(context, all);
    DDP_CHECK(results.size() == inputs.size(), AutogradError, name_, ": backward returned ", results.size(),
              " gradients, but forward had ", inputs.size(), " inputs");
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (!needs_input_grad(i) || !results[i].defined()) continue;
      DDP_CHECK(results[i].sizes() == inputs_[i].sizes, AutogradError, name_,
                ": backward returned a gradient of sizes ", results[i].sizes(), " for input ", i, " of sizes ",
                inputs_[i].sizes);
      DDP_CHECK(results[i].dtype() == inputs_[i].options.dtype && results[i].device() == inputs_[i].options.device,
                AutogradError, name_, ": backward returned a gradient of ", results[i].dtype(), " on ",
                results[i].device(), " for input ", i, " of ", inputs_[i].options.dtype, " on ",
                inputs_[i].options.device);
      inputs[i] = std::move(results[i]);
    }
  }

  void release_saved() override {
    if (saved_anything) released_ = true;
    FunctionAccess::release(context);
  }

  void add_input(const Tensor& input) {
    add_edge(input);
    inputs_.push_back(input.defined() ? Input{input.sizes(), input.options()} : Input{});
  }
  void add_output(int result) { outputs_.push_back(result); }

  FunctionContext context;
  bool saved_anything = false;

 private:
  struct Input {
    Dims sizes;
    TensorOptions options;
  };
  std::string name_;
  Body backward_;
  std::vector<Input> inputs_;
  std::vector<int> outputs_;  // which result of the node an output is, -1: none
  bool released_ = false;
};

}  // namespace

std::vector<Tensor> apply_function(const std::string& name, const std::vector<Tensor>& inputs, const Body& forward,
                                   const Body& backward) {
  const bool record = autograd::needs_graph(inputs);
  FunctionContext context;
  std::vector<bool> needs;
  needs.reserve(inputs.size());
  for (const Tensor& input : inputs) needs.push_back(record && input.defined() && input.requires_grad());
  FunctionAccess::set_needs(context, std::move(needs));

  std::vector<Tensor> outputs;
  {
    const NoGradGuard no_grad;
    outputs = forward(context, inputs);
  }
  // Each output gets a handle of its own: forward may return an input, or one tensor twice.
  for (Tensor& output : outputs) {
    if (output.defined()) output = autograd::alias(output);
  }
  if (!record) return outputs;

  Device device = Device::cpu();
  for (const Tensor& tensor : inputs) {
    if (tensor.defined()) device = tensor.device();
  }
  for (const Tensor& tensor : outputs) {
    if (tensor.defined()) device = tensor.device();
  }
  auto node = make_intrusive<FunctionNode>(device, name, backward);
  for (const Tensor& input : inputs) node->add_input(input);
  for (const Tensor& output : outputs) {
    if (output.defined() && is_floating_point(output.dtype())) {
      node->add_output(static_cast<int>(node->num_results()));
      autograd::set_history(output, node);
    } else {
      node->add_output(-1);
    }
  }
  node->saved_anything = FunctionAccess::seal(context, name);
  node->context = std::move(context);
  return outputs;
}

}  // namespace ddp
