#pragma once

#include <cstdint>
#include <vector>

#include "ddp/tensor/tensor.h"

/// From gradients to new parameters.
namespace ddp::optim {

/// Base of the optimisers. Parameters whose gradient is undefined are left alone. Not thread safe.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update from the present gradients: one call over a chunk table per group. Does not block.
  virtual void step() = 0;
  /// Marks all gradients undefined and keeps their memory.
  void zero_grad();
  /// Learning rate of group i, as schedulers set it.
  virtual double learning_rate(std::size_t group) const = 0;
  virtual void set_learning_rate(std::size_t group, double lr) = 0;
  virtual std::size_t num_groups() const = 0;
  /// All parameters of all groups, in order.
  const std::vector<Tensor>& parameters() const { return parameters_; }

 protected:
  Optimizer() = default;
  std::vector<Tensor> parameters_;
};

/// Scales all gradients so that their joint 2-norm is at most `max_norm`; returns the norm before, as one
/// float64 element on the gradients' device. Under DDP call it after backward: every rank then has the
/// same gradients and computes the same norm, so nothing is sent. Blocks the host on CPU only.
/// Throws InvalidArgument for max_norm <= 0.
Tensor clip_grad_norm(const std::vector<Tensor>& parameters, double max_norm);

}  // namespace ddp::optim
