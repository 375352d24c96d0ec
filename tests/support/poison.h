#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "core/allocator.h"
#include "core/device_runtime.h"

namespace ddp::test {

/// Fills free blocks of all small sizes of the device's pool with 0xff (NaN in every floating-point type, -1 as
/// a whole number), so that a result element nobody wrote is seen.
inline void poison_pool(Device device = Device::cpu(), std::size_t up_to = 1U << 12, int blocks = 6) {
  struct Block {
    void* pointer;
    std::size_t bytes;
  };
  std::vector<Block> taken;
  const std::vector<unsigned char> poison(device.is_cuda() ? up_to * 2 : 0, 0xff);
  const StreamView stream = current_stream(device);
  for (std::size_t octave = 64; octave <= up_to; octave *= 2) {
    for (std::size_t quarter = 0; quarter < 4; ++quarter) {  // the pool's size classes
      const std::size_t bytes = octave + octave / 4 * quarter;
      for (int i = 0; i < blocks; ++i) {
        void* pointer = core::allocate(bytes, stream);
        if (device.is_cuda()) {
          core::device_runtime(DeviceType::cuda).copy(pointer, device, poison.data(), Device::cpu(), bytes, stream);
        } else {
          std::memset(pointer, 0xff, bytes);
        }
        taken.push_back({pointer, bytes});
      }
    }
  }
  for (const Block& block : taken) core::deallocate(block.pointer, block.bytes, stream);
}

}  // namespace ddp::test
