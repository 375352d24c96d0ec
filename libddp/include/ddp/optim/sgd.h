#pragma once

#include <memory>
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

/// Stochastic gradient descent with PyTorch's momentum and Nesterov forms.
class SGD final : public Optimizer {
 public:
  /// Throws InvalidArgument that names the option and its range (lr >= 0, momentum >= 0, Nesterov needs
  /// momentum > 0 and no dampening), a parameter given twice, or an empty list.
  explicit SGD(std::vector<Tensor> parameters, const SGDOptions& options = {});
  explicit SGD(std::vector<SGDGroup> groups);
  ~SGD() override;
  void step() override;
  double learning_rate(std::size_t group) const override;
  void set_learning_rate(std::size_t group, double lr) override;
  std::size_t num_groups() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddp::optim
