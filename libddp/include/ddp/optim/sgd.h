#pragma once

#include <string>
#include <vector>

#include "ddp/optim/optimizer.h"

namespace ddp::optim {

struct SGDOptions {
  double lr = 0.01;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};
struct SGDGroup {
  std::vector<Tensor> parameters;
  SGDOptions options;
};

/// Stochastic gradient descent with PyTorch's momentum and Nesterov forms: g += weight_decay * p; v = g at a
/// parameter's first update, momentum * v + (1 - dampening) * g after; p -= lr * (nesterov ? g + momentum * v : v).
class SGD final : public Optimizer {
 public:
  /// Throws InvalidArgument that names the option and its range (lr >= 0, momentum >= 0, weight_decay >= 0;
  /// Nesterov needs momentum > 0 and no dampening), and see Optimizer.
  explicit SGD(std::vector<Tensor> parameters, const SGDOptions& options = {});
  explicit SGD(const std::vector<SGDGroup>& groups);
  void step() override;
  double learning_rate(std::size_t group) const override;
  void set_learning_rate(std::size_t group, double lr) override;
  std::size_t num_groups() const override { return groups_.size(); }
  /// "momentum_buffer"; only groups with momentum have it.
  std::vector<std::string> state_names() const override { return {"momentum_buffer"}; }

 private:
  std::vector<SGDOptions> groups_;
};

}  // namespace ddp::optim
