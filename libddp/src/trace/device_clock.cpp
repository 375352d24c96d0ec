#include "trace/device_clock.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ddp/core/error.h"
#include "ddp/trace/recorder.h"

namespace ddp::trace {
namespace {

constexpr std::int64_t kPatienceNs = 1'000'000'000;
constexpr std::int64_t kAnchorEveryNs = 1'000'000'000;
constexpr double kLargestDrift = 1e-4;

std::int64_t to_ns(double milliseconds) { return std::llround(milliseconds * 1e6); }

}  // namespace

DeviceClock::DeviceClock(Device device)
    : stream_(device, StreamPriority::high), anchor_(device, true), next_(device, true) {
  // Twice: the first event of a stream takes longer.
  for (int i = 0; i < 2; ++i) {
    anchor_.record(stream_);
    anchor_ns_ = now_ns();
    while (!anchor_.is_complete()) {
      DDP_CHECK(now_ns() - anchor_ns_ < kPatienceNs, TimeoutError, "an event of an idle stream on ", device,
                " was not reached within ", kPatienceNs / 1'000'000, " ms");
    }
  }
}

std::int64_t DeviceClock::host_ns(const Event& event) const {
  return anchor_ns_ + to_ns(event.milliseconds_since(anchor_));
}

void DeviceClock::tick() {
  if (next_recorded_ns_ == 0) {
    if (now_ns() - anchor_ns_ < kAnchorEveryNs) return;
    next_.record(stream_);
    next_recorded_ns_ = now_ns();
    return;
  }
  if (!next_.is_complete()) return;
  const double passed = next_.milliseconds_since(anchor_) * 1e6;
  const std::int64_t predicted = anchor_ns_ + std::llround(passed);
  const auto largest = static_cast<std::int64_t>(std::abs(passed) * kLargestDrift);
  anchor_ns_ = predicted + std::clamp(next_recorded_ns_ - predicted, -largest, largest);
  next_recorded_ns_ = 0;
  std::swap(anchor_, next_);
}

}  // namespace ddp::trace
