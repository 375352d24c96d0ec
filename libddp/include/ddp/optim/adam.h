#pragma once

#include <string>
#include <vector>

#include "ddp/optim/optimizer.h"

namespace ddp::optim {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  ///< added to the gradient
};
struct AdamGroup {
  std::vector<Tensor> parameters;
  AdamOptions options;
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;  ///< decoupled: p *= 1 - lr * weight_decay before the update
};
struct AdamWGroup {
  std::vector<Tensor> parameters;
  AdamWOptions options;
};

/// Adam (Kingma and Ba 2015) in PyTorch's form, with bias-corrected moments:
/// p -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps).
class Adam : public Optimizer {
 public:
  /// Throws InvalidArgument that names the option and its range (lr, eps, weight_decay >= 0, betas in [0, 1)),
  /// and see Optimizer.
  explicit Adam(std::vector<Tensor> parameters, const AdamOptions& options = {});
  explicit Adam(const std::vector<AdamGroup>& groups);
  void step() override;
  double learning_rate(std::size_t group) const override;
  void set_learning_rate(std::size_t group, double lr) override;
  std::size_t num_groups() const override { return groups_.size(); }
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }

 protected:
  Adam(std::string name, const std::vector<AdamGroup>& groups, bool decoupled);

 private:
  std::string name_;
  std::vector<AdamOptions> groups_;
  bool decoupled_;
};

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019).
class AdamW final : public Adam {
 public:
  explicit AdamW(std::vector<Tensor> parameters, const AdamWOptions& options = {});
  explicit AdamW(const std::vector<AdamWGroup>& groups);
};

}  // namespace ddp::optim
