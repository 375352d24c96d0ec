#pragma once

#include <functional>
#include <utility>

#include "autograd/node.h"

namespace ddp::parallel {

/// Stands between a wrapped module's outputs and the loss: backward comes here before it reaches anything of
/// the module, so this is where a pass begins, also when no parameter is reached later.
class OutputNode final : public autograd::Node {
 public:
  OutputNode(Device device, std::function<void()> begin) : Node(device), begin_(std::move(begin)) {}

  std::string_view name() const override { return "DistributedDataParallel"; }
  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) override {
    begin_();
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = std::move(grads[i]);
  }

 private:
  std::function<void()> begin_;
};

}  // namespace ddp::parallel
