#include "core/allocator.h"

#include <array>
#include <bit>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/device_runtime.h"
#include "ddp/core/error.h"

namespace ddp {
namespace core {
namespace {

constexpr std::size_t kSmallest = 64;

constexpr std::size_t kLarge = 1 << 20;

/// Size classes: four steps per power of two, so at most a quarter of a block is unused; 32 for large blocks,
/// where gradients and buckets make up most of the memory: at most 3 percent.
std::size_t class_bytes(std::size_t bytes) {
  if (bytes <= kSmallest * 4) return (bytes + kSmallest - 1) / kSmallest * kSmallest;
  const std::size_t step = std::bit_floor(bytes - 1) / (bytes > kLarge ? 32 : 4);
  return (bytes + step - 1) / step * step;  // NOLINT(clang-analyzer-core.DivideZero): bytes > 256 here
}

/// Free blocks of one device by size class and the stream they were used on. A block goes back to the
/// stream it came from, whose later work runs after the earlier, so no event is needed.
class Pool {
 public:
  void* allocate(std::size_t bytes, StreamView stream) {
    const std::size_t rounded = class_bytes(bytes);
    {
      const std::lock_guard lock(mutex_);
      auto& free_list = free_[Key{rounded, stream.native()}];
      if (!free_list.empty()) {
        void* pointer = free_list.back();
        free_list.pop_back();
        note_taken(rounded);
        return pointer;
      }
    }
    void* pointer = from_system(rounded, stream);
    const std::lock_guard lock(mutex_);
    stats_.reserved += static_cast<std::int64_t>(rounded);
    ++stats_.system_allocations;
    note_taken(rounded);
    return pointer;
  }

  void deallocate(void* pointer, std::size_t bytes, StreamView stream) noexcept {
    const std::size_t rounded = class_bytes(bytes);
    try {
      const std::lock_guard lock(mutex_);
      stats_.in_use -= static_cast<std::int64_t>(rounded);
      free_[Key{rounded, stream.native()}].push_back(pointer);
    } catch (...) {  // no room to remember the block: give it back at once
      device_runtime(stream.device().type).deallocate(stream.device(), pointer, rounded);
    }
  }

  MemoryStats stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    stats_.peak = stats_.in_use;
  }
  void release(Device device) {
    const std::lock_guard lock(mutex_);
    for (auto& [key, blocks] : free_) {
      for (void* pointer : blocks) device_runtime(device.type).deallocate(device, pointer, key.bytes);
      stats_.reserved -= static_cast<std::int64_t>(key.bytes * blocks.size());
      blocks.clear();
    }
  }

 private:
  struct Key {
    std::size_t bytes;
    CUstream_st* stream;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const {
      return std::hash<std::size_t>()(key.bytes) ^ (std::hash<void*>()(key.stream) << 1);
    }
  };

  void note_taken(std::size_t bytes) {
    stats_.in_use += static_cast<std::int64_t>(bytes);
    stats_.peak = std::max(stats_.peak, stats_.in_use);
    ++stats_.allocations;
  }

  void* from_system(std::size_t bytes, StreamView stream) {
    DeviceRuntime& runtime = device_runtime(stream.device().type);
    try {
      return runtime.allocate(stream.device(), bytes);
    } catch (const OutOfMemory&) {  // cached blocks of other sizes may be what is missing
      runtime.synchronize_device(stream.device());
      release(stream.device());
    }
    try {
      return runtime.allocate(stream.device(), bytes);
    } catch (const OutOfMemory& error) {
      const MemoryStats now = stats();
      detail::fail<OutOfMemory>("no memory for ", bytes, " bytes on ", stream.device(), ": ", now.in_use,
                                " bytes in use, ", now.reserved, " reserved (", error.what(), ")");
    }
  }

  mutable std::mutex mutex_;
  std::unordered_map<Key, std::vector<void*>, Hash> free_;
  MemoryStats stats_;
};

/// Never destroyed: tensors in statics may outlive any order of destruction we could choose.
Pool& pool(Device device) {
  static auto* pools = new std::array<std::array<Pool, kMaxCpuDevices>, 2>();
  check_device(device);
  return (*pools)[static_cast<std::size_t>(device.type)][static_cast<std::size_t>(device.index)];
}

}  // namespace

void* allocate(std::size_t bytes, StreamView stream) {
  if (bytes == 0) {
    check_device(stream.device());
    return nullptr;
  }
  return pool(stream.device()).allocate(bytes, stream);
}

void deallocate(void* pointer, std::size_t bytes, StreamView stream) noexcept {
  if (pointer != nullptr) pool(stream.device()).deallocate(pointer, bytes, stream);
}

}  // namespace core

MemoryStats memory_stats(Device device) { return core::pool(device).stats(); }
void reset_peak_memory(Device device) { core::pool(device).reset_peak(); }
void release_cached_memory(Device device) { core::pool(device).release(device); }

}  // namespace ddp
