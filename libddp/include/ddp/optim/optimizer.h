#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ddp/tensor/tensor.h"

/// From gradients to new parameters.
namespace ddp::optim {

/// What an optimiser keeps for one parameter: the number of updates so far and its state tensors in the order of
/// `Optimizer::state_names` (none before the first update). Updates that the device refused, because the gradients'
/// reduction had failed, do not count.
struct ParameterState {
  std::int64_t step = 0;
  std::vector<Tensor> tensors;
};

/// Base of the optimisers. Parameters whose gradient is undefined are left alone. Not thread safe.
class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update from the present gradients: one call over a chunk table per group. Does not block. Throws
  /// InvalidArgument, before anything is changed, when the parameters of a group are not on one device.
  virtual void step() = 0;
  /// Marks all gradients undefined and keeps their memory.
  void zero_grad();
  /// Learning rate of group i, as schedulers set it. Throws InvalidArgument for a group that does not exist.
  virtual double learning_rate(std::size_t group) const = 0;
  /// Throws InvalidArgument also for a rate that is negative or not finite.
  virtual void set_learning_rate(std::size_t group, double lr) = 0;
  virtual std::size_t num_groups() const = 0;
  /// All parameters of all groups, in order.
  const std::vector<Tensor>& parameters() const { return parameters_; }

  /// Names of the state tensors that each parameter can have ("momentum_buffer").
  virtual std::vector<std::string> state_names() const = 0;
  /// State of each parameter, in the order of `parameters`. Handles, not copies: the next step changes them. Under DDP
  /// on CUDA it blocks until the device has made or refused the last update.
  std::vector<ParameterState> state() const;
  /// Copies the numbers in. Throws InvalidArgument, and changes nothing, when the number of parameters, of
  /// tensors or their sizes do not fit.
  void load_state(const std::vector<ParameterState>& state);

 protected:
  class Table;
  /// `name` is how errors call the optimiser. Throws InvalidArgument for an empty list or a parameter that is
  /// undefined, no leaf, not of floating point, not dense in memory or given twice.
  Optimizer(std::string name, const std::vector<std::vector<Tensor>>& groups);

  Table& table() { return *table_; }

 private:
  friend class LRScheduler;
  std::vector<Tensor> parameters_;
  std::unique_ptr<Table> table_;
  std::vector<double> initial_rates_;  // as the first scheduler found them
};

/// Scales all gradients so that their joint 2-norm is at most `max_norm`; returns the norm before, as a float64
/// tensor without dimensions on the gradients' device. Under DDP call it after backward: every rank then has the
/// same gradients and computes the same norm, so nothing is sent. Does not block: norm and factor stay on the device,
/// and the host waits only when it reads the result. As in PyTorch, the factor is max_norm / (norm + 1e-6) where that
/// is below 1; a NaN norm makes all gradients NaN, an infinite one the infinite gradients NaN and the others 0. Counts
/// as a change in place in any case. Undefined gradients are left out; the norm of none is 0. Throws InvalidArgument
/// unless max_norm > 0.
Tensor clip_grad_norm(const std::vector<Tensor>& parameters, double max_norm);

}  // namespace ddp::optim
