#include "ddp/optim/lr_scheduler.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ddp/core/error.h"

namespace ddp::optim {

LRScheduler::LRScheduler(Optimizer& optimizer) : optimizer_(&optimizer) {
  if (!optimizer.initial_rates_.empty()) return;
  for (std::size_t g = 0; g < optimizer.num_groups(); ++g) {
    optimizer.initial_rates_.push_back(optimizer.learning_rate(g));
  }
}

void LRScheduler::set_epoch(std::int64_t epoch) {
  DDP_CHECK(epoch >= 0, InvalidArgument, "LRScheduler: epoch is ", epoch, "; it must be at least 0");
  epoch_ = epoch;
  apply();
}

void LRScheduler::apply() {
  for (std::size_t g = 0; g < optimizer_->num_groups(); ++g) {
    optimizer_->set_learning_rate(g, rate(optimizer_->initial_rates_[g], epoch_));
  }
}

StepLR::StepLR(Optimizer& optimizer, std::int64_t step_size, double gamma)
    : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {
  DDP_CHECK(step_size >= 1, InvalidArgument, "StepLR: step_size is ", step_size, "; it must be at least 1");
  DDP_CHECK(gamma >= 0, InvalidArgument, "StepLR: gamma is ", gamma, "; it must be at least 0");
  StepLR::apply();
}

double StepLR::rate(double initial, std::int64_t epoch) const {
  const std::int64_t falls = epoch / step_size_;
  return initial * std::pow(gamma_, static_cast<double>(falls));
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, std::int64_t t_max, double eta_min)
    : LRScheduler(optimizer), t_max_(t_max), eta_min_(eta_min) {
  DDP_CHECK(t_max >= 1, InvalidArgument, "CosineAnnealingLR: t_max is ", t_max, "; it must be at least 1");
  DDP_CHECK(eta_min >= 0, InvalidArgument, "CosineAnnealingLR: eta_min is ", eta_min, "; it must be at least 0");
  CosineAnnealingLR::apply();
}

double CosineAnnealingLR::rate(double initial, std::int64_t epoch) const {
  const double angle = std::numbers::pi * static_cast<double>(epoch) / static_cast<double>(t_max_);
  return eta_min_ + (initial - eta_min_) * (1 + std::cos(angle)) / 2;
}

LinearLR::LinearLR(Optimizer& optimizer, const LinearLROptions& options) : LRScheduler(optimizer), options_(options) {
  DDP_CHECK(options.start_factor > 0 && options.start_factor <= 1, InvalidArgument, "LinearLR: start_factor is ",
            options.start_factor, "; it must be in (0, 1]");
  DDP_CHECK(options.end_factor >= 0 && options.end_factor <= 1, InvalidArgument, "LinearLR: end_factor is ",
            options.end_factor, "; it must be in [0, 1]");
  DDP_CHECK(options.total_iters >= 1, InvalidArgument, "LinearLR: total_iters is ", options.total_iters,
            "; it must be at least 1");
  LinearLR::apply();
}

double LinearLR::rate(double initial, std::int64_t epoch) const {
  const double done =
      static_cast<double>(std::min(epoch, options_.total_iters)) / static_cast<double>(options_.total_iters);
  return initial * (options_.start_factor + (options_.end_factor - options_.start_factor) * done);
}

SequentialLR::SequentialLR(Optimizer& optimizer, std::vector<std::shared_ptr<LRScheduler>> schedulers,
                           std::vector<std::int64_t> milestones)
    : LRScheduler(optimizer), schedulers_(std::move(schedulers)), milestones_(std::move(milestones)) {
  DDP_CHECK(!schedulers_.empty() && milestones_.size() + 1 == schedulers_.size(), InvalidArgument,
            "SequentialLR: ", schedulers_.size(), " schedulers need one milestone fewer, given ", milestones_.size());
  std::int64_t previous = 0;
  for (const std::int64_t milestone : milestones_) {
    DDP_CHECK(milestone > previous, InvalidArgument, "SequentialLR: milestone ", milestone, " must be above ",
              previous);
    previous = milestone;
  }
  for (const auto& scheduler : schedulers_) {
    DDP_CHECK(scheduler != nullptr, InvalidArgument, "SequentialLR: a scheduler is null");
  }
  SequentialLR::apply();
}

double SequentialLR::rate(double initial, std::int64_t epoch) const {
  const auto next = std::upper_bound(milestones_.begin(), milestones_.end(), epoch);
  const auto which = static_cast<std::size_t>(next - milestones_.begin());
  return schedulers_[which]->rate(initial, which == 0 ? epoch : epoch - milestones_[which - 1]);
}

}  // namespace ddp::optim
