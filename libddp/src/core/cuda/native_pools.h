#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <vector>

#include "core/spin_lock.h"
#include "ddp/core/device.h"
#include "ddp/core/stream.h"

/// Streams and events that nobody uses at present. Making one takes microseconds and a lock of the driver, getting one
/// from here some nanoseconds. All calls expect the device to be current.
namespace ddp::core::cuda {

class EventPool {
 public:
  /// Throws DeviceError.
  cudaEvent_t take(bool timing);
  /// What is still recorded or waited for goes on: waits keep the state that they were queued with.
  void give(cudaEvent_t event, bool timing) noexcept;

 private:
  SpinLock mutex_;
  std::array<std::vector<cudaEvent_t>, 2> free_;
};

class StreamPool {
 public:
  /// An idle stream, or a new one. Throws DeviceError.
  cudaStream_t take(StreamPriority priority);
  void give(cudaStream_t stream) noexcept;

 private:
  struct Free {
    cudaStream_t stream;
    int priority;
  };
  SpinLock mutex_;
  std::vector<Free> free_;  // oldest first
};

struct NativePools {
  EventPool events;
  StreamPool streams;
};

/// Of one device. Never destroyed: at the end of the process the driver takes everything.
NativePools& native_pools(Device device);

}  // namespace ddp::core::cuda
