#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ddp/optim/optimizer.h"

/// Learning rates over time, by the closed formulas of PyTorch's torch/optim/lr_scheduler.py. "Epoch" is whatever
/// `step` is called after: an epoch or a training step.
namespace ddp::optim {

/// Base. Sets the rates of all groups for epoch 0 when made and for the next epoch at each `step`, from the
/// initial rates: those that the optimiser had when its first scheduler was made. The optimiser must outlive it.
class LRScheduler {
 public:
  virtual ~LRScheduler() = default;
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;

  void step() { set_epoch(epoch_ + 1); }
  std::int64_t epoch() const { return epoch_; }
  /// Goes to any epoch, to resume. Throws InvalidArgument for a negative one.
  void set_epoch(std::int64_t epoch);
  /// The rate at an epoch of a group that starts with `initial`.
  virtual double rate(double initial, std::int64_t epoch) const = 0;

 protected:
  explicit LRScheduler(Optimizer& optimizer);
  /// For constructors of derived classes: sets the rates of epoch 0.
  void apply();

 private:
  Optimizer* optimizer_;
  std::int64_t epoch_ = 0;
};

/// initial * gamma^floor(epoch / step_size).
class StepLR final : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, std::int64_t step_size, double gamma = 0.1);
  double rate(double initial, std::int64_t epoch) const override;

 private:
  std::int64_t step_size_;
  double gamma_;
};

/// eta_min + (initial - eta_min) * (1 + cos(pi * epoch / t_max)) / 2.
class CosineAnnealingLR final : public LRScheduler {
 public:
  CosineAnnealingLR(Optimizer& optimizer, std::int64_t t_max, double eta_min = 0);
  double rate(double initial, std::int64_t epoch) const override;

 private:
  std::int64_t t_max_;
  double eta_min_;
};

struct LinearLROptions {
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  std::int64_t total_iters = 5;
};
/// Linear warm-up: initial * factor, which goes from start_factor to end_factor in total_iters epochs and stays.
class LinearLR final : public LRScheduler {
 public:
  /// Throws InvalidArgument unless 0 < start_factor <= 1, 0 <= end_factor <= 1 and total_iters >= 1.
  explicit LinearLR(Optimizer& optimizer, const LinearLROptions& options = {});
  double rate(double initial, std::int64_t epoch) const override;

 private:
  LinearLROptions options_;
};

/// One scheduler after the other: number i + 1 takes over, counting from 0, at epoch milestones[i]. Warm-up then
/// cosine: SequentialLR(opt, {LinearLR, CosineAnnealingLR}, {warm_up_epochs}).
class SequentialLR final : public LRScheduler {
 public:
  /// Throws InvalidArgument unless there is one milestone fewer than schedulers, rising and positive.
  SequentialLR(Optimizer& optimizer, std::vector<std::shared_ptr<LRScheduler>> schedulers,
               std::vector<std::int64_t> milestones);
  double rate(double initial, std::int64_t epoch) const override;

 private:
  std::vector<std::shared_ptr<LRScheduler>> schedulers_;
  std::vector<std::int64_t> milestones_;
};

}  // namespace ddp::optim
