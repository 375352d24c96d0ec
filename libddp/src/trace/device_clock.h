#pragma once

#include <cstdint>

#include "ddp/core/stream.h"

namespace ddp::trace {

/// Puts the times of a device's events on the host's clock.
///
/// An anchor is an event, put into a stream that has nothing else to do, whose host time is known: such an event
/// is reached some microseconds after it was recorded. Every second a new anchor follows, since the milliseconds
/// between two events are a float (24 bits: 1 s apart they are good to 0.1 microseconds) and since the two clocks
/// drift apart; a new anchor corrects by at most 100 millionths of the time passed, so that one that the device
/// reached late bends nothing.
class DeviceClock {
 public:
  /// Blocks the host until the first anchor is reached. Throws TimeoutError when the device is not there in a second:
  /// something holds it up, a kernel that waits for a peer perhaps.
  explicit DeviceClock(Device device);

  /// Host time of a timing event that is complete.
  std::int64_t host_ns(const Event& event) const;
  /// Records, or takes over, the next anchor when it is time. Does not block.
  void tick();

 private:
  Stream stream_;
  Event anchor_;
  std::int64_t anchor_ns_ = 0;
  Event next_;
  std::int64_t next_recorded_ns_ = 0;  // 0: none on its way
};

}  // namespace ddp::trace
