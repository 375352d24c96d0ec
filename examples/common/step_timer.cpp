#include "common/step_timer.h"

#include <ddp/core/stream.h>

#include <algorithm>

#include "common/reporter.h"

namespace examples {
namespace {

constexpr std::int64_t kWarmUp = 10;

double milliseconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace

void StepTimer::wait_for_device() const {
  if (device_.is_cuda()) ddp::current_stream(device_).synchronize();
}

void StepTimer::begin_epoch() {
  wait_for_device();
  step_start_ = window_start_ = Clock::now();
  window_steps_ = 0;
}

void StepTimer::end_step() {
  ++window_steps_;
  if (device_.is_cuda() && steps() + 1 == kWarmUp) {
    wait_for_device();
    window_start_ = Clock::now();
    window_steps_ = 0;
  }
  const auto now = Clock::now();
  host_ms_.push_back(milliseconds(now - step_start_));
  step_start_ = now;
}

void StepTimer::end_epoch() {
  wait_for_device();
  counted_ms_ += milliseconds(Clock::now() - window_start_);
  counted_steps_ += window_steps_;
}

double StepTimer::recent_ms() const {
  const auto newest = std::min<std::ptrdiff_t>(50, static_cast<std::ptrdiff_t>(host_ms_.size()));
  return median({host_ms_.end() - newest, host_ms_.end()});
}

double StepTimer::typical_ms() const {
  if (device_.is_cuda()) return counted_steps_ > 0 ? counted_ms_ / static_cast<double>(counted_steps_) : recent_ms();
  const std::int64_t skipped = steps() > 2 * kWarmUp ? kWarmUp : steps() / 4;
  return median({host_ms_.begin() + skipped, host_ms_.end()});
}

}  // namespace examples
