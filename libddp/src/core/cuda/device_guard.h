#pragma once

#include <cuda_runtime_api.h>

#include "core/cuda/check.h"
#include "ddp/core/device.h"

namespace ddp::core::cuda {

/// Makes a device the calling thread's current one until the end of the scope. Costs one thread-local
/// read when it already is. A thread whose earlier device has no context stays on the new one: going back would make
/// one there, some hundred megabytes on a GPU that the process may have no part in.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device) {
    DDP_CUDA_CHECK(cudaGetDevice(&previous_));
    if (previous_ != device.index) {
      DDP_CUDA_CHECK(cudaSetDevice(device.index));
      changed_ = true;
    }
  }
  ~DeviceGuard() {
    if (changed_) restore(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  static void restore(int previous) noexcept;

  int previous_ = 0;
  bool changed_ = false;
};

}  // namespace ddp::core::cuda
