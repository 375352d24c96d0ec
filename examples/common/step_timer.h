#pragma once

#include <ddp/core/device.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace examples {

/// How long a step takes. On a CPU device the median over the steps; on a GPU, where the host only queues the work
/// and may be several steps ahead, the mean over the steps of whole epochs, from one wait for the device to the
/// next. The first steps (caches warm up, buckets are planned anew) do not count.
class StepTimer {
 public:
  explicit StepTimer(ddp::Device device) : device_(device) {}

  /// Waits for the device.
  void begin_epoch();
  void end_step();
  /// Waits for the device. Call before anything that is not training.
  void end_epoch();

  std::int64_t steps() const { return static_cast<std::int64_t>(host_ms_.size()); }
  /// Of the newest steps, on the host, for a progress line.
  double recent_ms() const;
  double typical_ms() const;

 private:
  using Clock = std::chrono::steady_clock;
  void wait_for_device() const;

  ddp::Device device_;
  Clock::time_point step_start_;
  std::vector<double> host_ms_;
  Clock::time_point window_start_;
  std::int64_t window_steps_ = 0;
  double counted_ms_ = 0;
  std::int64_t counted_steps_ = 0;
};

}  // namespace examples
