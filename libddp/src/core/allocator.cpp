#include "core/allocator.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <future>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "core/block_pool.h"
#include "core/device_runtime.h"
#include "core/env.h"
#include "core/observer.h"
#include "core/system_memory.h"
#include "ddp/core/error.h"

namespace ddp {
namespace core {
namespace {

// When memory is short: for work that is queued. Longer than a collective that is stuck lasts with usual time-outs.
constexpr std::chrono::minutes kPatience{12};

AllocatorMode allocator_mode(DeviceType type) {
  if (type != DeviceType::cuda) return AllocatorMode::caching;
  static const AllocatorMode mode = parse_allocator_mode(env_string("DDP_CUDA_ALLOCATOR"));
  return mode;
}

/// What a stream has freed; a block goes back to the stream it came from. Lives for ever, so that threads may remember
/// where it is.
struct StreamPool {
  StreamPool(StreamView of, MemoryCounts& of_device, bool is_plain) : stream(of), counts(of_device), plain(is_plain) {}
  const StreamView stream;
  MemoryCounts& counts;
  const bool plain;
  BlockPool blocks;
  std::atomic<std::int64_t> plain_allocations{0};
  StreamPool* next = nullptr;  // set before others see this one
};

class DevicePool {
 public:
  /// Null when nothing was ever allocated for that stream.
  StreamPool* find(StreamView stream) const noexcept {
    StreamPool* pool = first_.load(std::memory_order_acquire);
    while (pool != nullptr && pool->stream != stream) pool = pool->next;
    return pool;
  }
  StreamPool& find_or_make(StreamView stream) {
    const std::lock_guard lock(mutex_);
    if (StreamPool* pool = find(stream)) return *pool;
    auto* pool = new StreamPool(stream, counts_, allocator_mode(stream.device().type) == AllocatorMode::plain);
    pool->next = first_.load(std::memory_order_relaxed);
    first_.store(pool, std::memory_order_release);
    return *pool;
  }

  MemoryStats stats() const noexcept {
    MemoryStats stats = counts_.stats();
    for (const StreamPool* pool = first_.load(std::memory_order_acquire); pool != nullptr; pool = pool->next) {
      stats.allocations += pool->blocks.handed_out() + pool->plain_allocations.load(std::memory_order_relaxed);
    }
    return stats;
  }
  void reset_peak() noexcept { counts_.reset_peak(); }

  void release() {
    for (StreamPool* pool = first_.load(std::memory_order_acquire); pool != nullptr; pool = pool->next) {
      for (const auto& [index, pointer] : pool->blocks.take_all()) {
        system_deallocate(Memory::device, pool->stream.device(), pointer, class_bytes(index));
        counts_.sent_back(class_bytes(index));
      }
    }
  }

 private:
  MemoryCounts counts_;
  std::mutex mutex_;  // one thread at a time adds a stream
  std::atomic<StreamPool*> first_{nullptr};
};

/// Never destroyed: tensors in statics may outlive any order of destruction we could choose.
DevicePool& pool(Device device) {
  static auto* pools = new std::array<std::array<DevicePool, kMaxCpuDevices>, 2>();
  return (*pools)[static_cast<std::size_t>(device.type)][static_cast<std::size_t>(device.index)];
}

/// The streams that a thread used last.
struct Remembered {
  CUstream_st* stream;
  StreamPool* pool;
};
constexpr std::size_t kRemembered = 16;
constinit thread_local Remembered t_remembered[kRemembered] = {};

Remembered& remembered(StreamView stream) noexcept {
  const auto bits = reinterpret_cast<std::uintptr_t>(stream.native());
  const std::size_t place = (bits >> 4) ^ (bits >> 9) ^ static_cast<std::size_t>(stream.device().index * 2) ^
                            static_cast<std::size_t>(stream.device().type);
  return t_remembered[place % kRemembered];
}

StreamPool& stream_pool(StreamView stream) {
  Remembered& entry = remembered(stream);
  if (entry.pool != nullptr && entry.pool->stream == stream) [[likely]] {
    return *entry.pool;
  }
  check_device(stream.device());
  StreamPool* found = pool(stream.device()).find(stream);
  entry.pool = found != nullptr ? found : &pool(stream.device()).find_or_make(stream);
  return *entry.pool;
}

/// `release` gives back what is cached; where it cannot it says why, for the error.
template <class Release, class Stats>
void* from_system(Memory kind, Device device, std::size_t bytes, const Release& release, const Stats& stats) {
  try {
    return system_allocate(kind, device, bytes);
  } catch (const OutOfMemory&) {  // cached blocks of other sizes may be what is missing
  }
  const std::string_view unreleased = release();
  try {
    return system_allocate(kind, device, bytes);
  } catch (const OutOfMemory& error) {
    const MemoryStats now = stats();
    detail::fail<OutOfMemory>("no memory for ", bytes, " bytes on ", device, ": ", now.in_use, " bytes in use, ",
                              now.reserved, " reserved", unreleased, " (", error.what(), ")");
  }
}

/// Freeing memory waits for the device, and the runtime knows no limit for that: another thread waits, this one for it.
/// False when the device is not done in time, as behind a collective that is stuck.
bool comes_to_rest(Device device) {
  const auto wait = [device] { device_runtime(device.type).synchronize_device(device); };
  std::packaged_task<void()> task(wait);
  std::future<void> rest = task.get_future();
  std::thread thread;
  try {
    thread = std::thread(std::move(task));
  } catch (const std::system_error&) {  // no thread to be had
    wait();
    return true;
  }
  if (rest.wait_for(kPatience) == std::future_status::timeout) {
    thread.detach();  // ends when the device does
    return false;
  }
  thread.join();
  rest.get();
  return true;
}

void* from_system(StreamPool& from, std::size_t bytes) {
  const Device device = from.stream.device();
  void* pointer = from_system(
      Memory::device, device, bytes,
      [device] {
        const BlockingScope scope("memory is short", device, std::source_location::current());
        if (device.is_cuda() && !comes_to_rest(device)) {
          return std::string_view(
              "; cached memory was not given back, since the device does not get done with what is queued");
        }
        pool(device).release();
        return std::string_view();
      },
      [device] { return pool(device).stats(); });
  from.counts.brought_in(bytes);
  return pointer;
}

// Nothing of the size is free.
void* take_slowly(StreamPool& from, std::size_t index) {
  if (std::optional<BlockPool::Pending> block = from.blocks.take_pending(index)) {
    // Better to let the stream wait for the block's last users than to stop everything for a cudaMalloc.
    try {
      for (const Event& event : block->events) from.stream.wait(event);
    } catch (...) {
      from.blocks.give_pending_back(std::move(*block));
      throw;
    }
    return block->pointer;
  }
  from.blocks.expect(index);
  try {
    return from_system(from, class_bytes(index));
  } catch (...) {
    from.blocks.forget(index);
    throw;
  }
}

void* allocate_plain(StreamPool& from, std::size_t bytes) {
  void* pointer = from_system(from, bytes);
  from.plain_allocations.fetch_add(1, std::memory_order_relaxed);
  from.counts.taken(bytes);
  return pointer;
}

void wait_for_users(std::span<const StreamView> users) noexcept {
  for (const StreamView user : users) {
    try {
      user.synchronize();
    } catch (...) {  // NOLINT(bugprone-empty-catch): a stream that cannot be waited for runs nothing any more
    }
  }
}

/// Marks in the streams that use a block; empty when it is free at once.
std::vector<Event> mark(std::span<const StreamView> users, StreamView own) noexcept {
  std::vector<Event> events;
  for (const StreamView user : users) {
    if (user == own || user.device().is_cpu()) continue;
    try {
      Event event(user.device());
      event.record(user);
      events.push_back(std::move(event));
    } catch (...) {
      wait_for_users({&user, 1});
    }
  }
  return events;
}

// The system waits for the device before it frees, and with it for the block's own stream.
void deallocate_plain(StreamPool& to, void* pointer, std::size_t bytes, std::span<const StreamView> users) noexcept {
  try {
    for (const Event& event : mark(users, to.stream)) to.stream.wait(event);
  } catch (...) {
    wait_for_users(users);
  }
  to.counts.given(bytes);
  to.counts.sent_back(bytes);
  system_deallocate(Memory::device, to.stream.device(), pointer, bytes);
}

void give_back(BlockPool& to, MemoryCounts& counts, void* pointer, std::size_t bytes, StreamView own,
               std::span<const StreamView> users) noexcept {
  BlockPool::Pending block{pointer, size_class(bytes), mark(users, own)};
  counts.given(class_bytes(block.index));
  if (!block.events.empty()) {
    try {
      to.give_pending(std::move(block));
      return;
    } catch (...) {  // no room to remember the events
      wait_for_users(users);
    }
  }
  to.give(size_class(bytes), pointer);
}

/// Page-locked host memory, one for all devices.
struct PinnedPool {
  BlockPool blocks;
  MemoryCounts counts;

  MemoryStats stats() const noexcept {
    MemoryStats stats = counts.stats();
    stats.allocations = blocks.handed_out();
    return stats;
  }
  void release() {
    for (const auto& [index, pointer] : blocks.take_all()) {
      system_deallocate(Memory::pinned_host, Device::cpu(), pointer, class_bytes(index));
      counts.sent_back(class_bytes(index));
    }
  }
};

PinnedPool& pinned_pool() {
  static auto* instance = new PinnedPool;
  return *instance;
}

void* take_pinned_slowly(PinnedPool& from, std::size_t index) {
  if (std::optional<BlockPool::Pending> block = from.blocks.take_pending(index)) {
    bool done = false;
    try {
      done = true;
      for (const Event& event : block->events) done = done && event.is_complete();
    } catch (...) {
      from.blocks.give_pending_back(std::move(*block));
      throw;
    }
    if (done) return block->pointer;
    from.blocks.give_pending_back(std::move(*block));
  }
  from.blocks.expect(index);
  try {
    void* pointer = from_system(
        Memory::pinned_host, Device::cpu(), class_bytes(index),
        [&from] {
          from.release();
          return std::string_view();
        },
        [&from] { return from.stats(); });
    from.counts.brought_in(class_bytes(index));
    return pointer;
  } catch (...) {
    from.blocks.forget(index);
    throw;
  }
}

void check_bytes(std::size_t bytes, Device device) {
  DDP_CHECK(bytes <= kLargestBlock, OutOfMemory, "no memory for ", bytes, " bytes on ", device,
            ": a block has at most ", kLargestBlock);
}

}  // namespace

AllocatorMode parse_allocator_mode(const std::optional<std::string>& text) {
  if (!text || text->empty() || *text == "caching") return AllocatorMode::caching;
  DDP_CHECK(*text == "plain", InvalidArgument, "DDP_CUDA_ALLOCATOR is '", *text, "'; allowed: caching, plain");
  return AllocatorMode::plain;
}

void* allocate(std::size_t bytes, StreamView stream) {
  if (bytes == 0) {
    check_device(stream.device());
    return nullptr;
  }
  check_bytes(bytes, stream.device());
  StreamPool& from = stream_pool(stream);
  if (from.plain) [[unlikely]] {
    return allocate_plain(from, bytes);
  }
  const std::size_t index = size_class(bytes);
  void* pointer = from.blocks.take(index);
  if (pointer == nullptr) [[unlikely]] {
    pointer = take_slowly(from, index);
  }
  from.counts.taken(class_bytes(index));
  return pointer;
}

void deallocate(void* pointer, std::size_t bytes, StreamView stream) noexcept {
  if (pointer == nullptr) return;
  StreamPool& to = stream_pool(stream);
  if (to.plain) [[unlikely]] {
    deallocate_plain(to, pointer, bytes, {});
    return;
  }
  const std::size_t index = size_class(bytes);
  to.counts.given(class_bytes(index));
  to.blocks.give(index, pointer);
}

void deallocate(void* pointer, std::size_t bytes, StreamView stream, std::span<const StreamView> users) noexcept {
  if (pointer == nullptr) return;
  StreamPool& to = stream_pool(stream);
  if (to.plain) {
    deallocate_plain(to, pointer, bytes, users);
    return;
  }
  give_back(to.blocks, to.counts, pointer, bytes, stream, users);
}

bool can_pin() noexcept { return cuda_runtime().device_count() > 0; }

void* allocate_pinned(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  check_bytes(bytes, Device::cpu());
  DDP_CHECK(can_pin(), NotAvailable, "pinned host memory needs a build with CUDA and a GPU");
  PinnedPool& from = pinned_pool();
  const std::size_t index = size_class(bytes);
  void* pointer = from.blocks.take(index);
  if (pointer == nullptr) pointer = take_pinned_slowly(from, index);
  from.counts.taken(class_bytes(index));
  return pointer;
}

void deallocate_pinned(void* pointer, std::size_t bytes, std::span<const StreamView> users) noexcept {
  if (pointer == nullptr) return;
  PinnedPool& to = pinned_pool();
  give_back(to.blocks, to.counts, pointer, bytes, StreamView(Device::cpu()), users);
}

}  // namespace core

MemoryStats memory_stats(Device device) {
  core::check_device(device);
  return core::pool(device).stats();
}
void reset_peak_memory(Device device) {
  core::check_device(device);
  core::pool(device).reset_peak();
}
void release_cached_memory(Device device, std::source_location where) {
  core::check_device(device);
  if (device.is_cpu()) return core::pool(device).release();
  const core::BlockingScope scope("release of cached memory", device, where);
  core::pool(device).release();
}

MemoryStats pinned_memory_stats() { return core::pinned_pool().stats(); }
void release_cached_pinned_memory(std::source_location where) {
  if (!core::can_pin()) return;
  const core::BlockingScope scope("release of pinned memory", Device::cpu(), where);
  core::pinned_pool().release();
}

}  // namespace ddp
