#pragma once

#include <memory>
#include <vector>

#include "ddp/core/stream.h"

namespace ddp::parallel {

/// How long a CUDA stream waits for sums: two events around each wait, read when the device has passed them.
class ExposedTime {
 public:
  explicit ExposedTime(Device device) : device_(device) {}

  void begin(StreamView stream) {
    if (free_.empty()) free_.push_back(std::make_unique<Wait>(device_));
    open_ = std::move(free_.back());
    free_.pop_back();
    open_->begin.record(stream);
  }
  void end(StreamView stream) {
    open_->end.record(stream);
    pending_.push_back(std::move(open_));
  }
  /// The milliseconds of all waits that have ended since the last call. Does not block.
  double collect() {
    double milliseconds = 0;
    std::size_t ended = 0;
    for (; ended < pending_.size() && pending_[ended]->end.is_complete(); ++ended) {
      milliseconds += pending_[ended]->end.milliseconds_since(pending_[ended]->begin);
      free_.push_back(std::move(pending_[ended]));
    }
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(ended));
    return milliseconds;
  }

 private:
  struct Wait {
    explicit Wait(Device device) : begin(device, true), end(device, true) {}
    Event begin;
    Event end;
  };
  const Device device_;
  std::unique_ptr<Wait> open_;
  std::vector<std::unique_ptr<Wait>> free_;
  std::vector<std::unique_ptr<Wait>> pending_;  // in order
};

}  // namespace ddp::parallel
