#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/size_class.h"
#include "core/spin_lock.h"
#include "ddp/core/device.h"
#include "ddp/core/stream.h"

namespace ddp::core {

/// Free blocks by size class. Room to take a block back is made when it is first brought in, so that giving back
/// neither allocates nor fails.
class BlockPool {
 public:
  /// A freed block that work marked by the events still uses.
  struct Pending {
    void* pointer = nullptr;
    std::size_t index = 0;  // its size class
    std::vector<Event> events;
  };

  /// A free block, or null.
  void* take(std::size_t index) noexcept {
    const std::lock_guard lock(mutex_);
    std::vector<void*>& list = free_[index];
    if (list.empty()) return nullptr;
    void* pointer = list.back();
    list.pop_back();
    note_handed_out();
    return pointer;
  }
  void give(std::size_t index, void* pointer) noexcept {
    const std::lock_guard lock(mutex_);
    free_[index].push_back(pointer);  // there is room
  }

  /// Of this class, the block that has been waiting longest.
  std::optional<Pending> take_pending(std::size_t index);
  /// Throws std::bad_alloc, and then has not taken the block.
  void give_pending(Pending&& block);
  /// One that was taken and is still in use.
  void give_pending_back(Pending&& block);

  /// A block of this class is going to be brought in from the system: makes room.
  void expect(std::size_t index);
  /// It did not come.
  void forget(std::size_t index) noexcept {
    const std::lock_guard lock(mutex_);
    --known_[index];
    handed_out_.store(handed_out() - 1, std::memory_order_relaxed);
  }

  /// Blocks taken so far, those that were expected among them.
  std::int64_t handed_out() const noexcept { return handed_out_.load(std::memory_order_relaxed); }

  /// Removes all that is free, and of what waits that which is done.
  std::vector<std::pair<std::size_t, void*>> take_all();

 private:
  // Under the lock; atomic only for readers without it.
  void note_handed_out() noexcept { handed_out_.store(handed_out() + 1, std::memory_order_relaxed); }

  SpinLock mutex_;
  std::atomic<std::int64_t> handed_out_{0};
  std::array<std::vector<void*>, kSizeClasses> free_;
  std::array<std::size_t, kSizeClasses> known_{};  // blocks that may come to be in `free_`
  std::vector<Pending> pending_;                   // oldest first
};

/// What one device, or the pinned host memory, has handed out; exact whatever the number of threads.
class MemoryCounts {
 public:
  void taken(std::size_t bytes) noexcept {
    const auto amount = static_cast<std::int64_t>(bytes);
    raise_peak(in_use_.fetch_add(amount, std::memory_order_relaxed) + amount);
  }
  void given(std::size_t bytes) noexcept {
    in_use_.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
  }
  void brought_in(std::size_t bytes) noexcept {
    reserved_.fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
    system_allocations_.fetch_add(1, std::memory_order_relaxed);
  }
  void sent_back(std::size_t bytes) noexcept {
    reserved_.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
  }
  void reset_peak() noexcept {
    peak_.store(in_use_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    raise_peak(in_use_.load(std::memory_order_relaxed));  // taken between the two
  }
  /// All but `allocations`.
  MemoryStats stats() const noexcept {
    return {.in_use = in_use_.load(std::memory_order_relaxed),
            .peak = peak_.load(std::memory_order_relaxed),
            .reserved = reserved_.load(std::memory_order_relaxed),
            .system_allocations = system_allocations_.load(std::memory_order_relaxed)};
  }

 private:
  void raise_peak(std::int64_t now) noexcept {
    std::int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }

  std::atomic<std::int64_t> in_use_{0};
  std::atomic<std::int64_t> peak_{0};
  std::atomic<std::int64_t> reserved_{0};
  std::atomic<std::int64_t> system_allocations_{0};
};

}  // namespace ddp::core
