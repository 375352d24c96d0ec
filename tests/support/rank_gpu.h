#pragma once

#include <algorithm>
#include <cstdlib>

#include "ddp/core/device.h"

namespace ddp::test {

/// The GPU of this rank's process: a GPU of its own where there are enough, else in turn. The first one in a process
/// that is no rank.
inline Device rank_gpu() {
  static const Device device = [] {
    const char* rank = std::getenv("LOCAL_RANK");
    return Device::cuda(rank == nullptr ? 0 : std::atoi(rank) % std::max(device_count(DeviceType::cuda), 1));
  }();
  return device;
}

}  // namespace ddp::test
