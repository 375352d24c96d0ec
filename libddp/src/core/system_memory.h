#pragma once

#include <cstddef>

#include "ddp/core/device.h"

/// Memory from the system and back to it: where NoDeviceAllocation is enforced.
namespace ddp::core {

enum class Memory : unsigned char { device, pinned_host };

/// Throws OutOfMemory, and InvalidArgument inside a NoDeviceAllocation scope of this thread.
void* system_allocate(Memory kind, Device device, std::size_t bytes);
/// Inside such a scope the memory goes back at its end.
void system_deallocate(Memory kind, Device device, void* pointer, std::size_t bytes) noexcept;

}  // namespace ddp::core
