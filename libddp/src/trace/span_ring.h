#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "ddp/trace/recorder.h"

namespace ddp::trace {

/// The newest spans, written by any number of threads without locks and read at any time.
///
/// A writer takes a ticket, which names its slot, and marks the slot odd while it writes. A reader takes a
/// slot only if it carries the same even mark before and after. Contents are atomic words: stores release
/// and loads acquire, so that a reader who sees a word of a later writer also sees that writer's odd mark.
template <std::size_t Capacity>
class SpanRing {
  static_assert((Capacity & (Capacity - 1)) == 0, "the slot is found by masking");

 public:
  void push(const Span& span) noexcept {
    const std::uint64_t ticket = head_.fetch_add(1, std::memory_order_relaxed);
    Slot& slot = slots_[ticket & (Capacity - 1)];
    std::uint64_t mark = atomic(slot.mark).load(std::memory_order_relaxed);
    // Odd: a thread one lap behind is writing. Larger: this thread was lapped. Either way the span is
    // dropped; to wait here would be to wait for a thread that is not running.
    if ((mark & 1) != 0 || mark >= writing(ticket)) return;
    if (!atomic(slot.mark).compare_exchange_strong(mark, writing(ticket), std::memory_order_acq_rel,
                                                   std::memory_order_relaxed)) {
      return;
    }
    const auto words = std::bit_cast<Words>(span);
    for (std::size_t i = 0; i < words.size(); ++i) atomic(slot.words[i]).store(words[i], std::memory_order_release);
    atomic(slot.mark).store(written(ticket), std::memory_order_release);
  }

  /// Oldest first. Spans being written meanwhile may be missing.
  std::vector<Span> read() const {
    const std::uint64_t end = head_.load(std::memory_order_acquire);
    std::uint64_t begin = floor_.load(std::memory_order_acquire);
    if (end - begin > Capacity) begin = end - Capacity;
    std::vector<Span> result;
    result.reserve(static_cast<std::size_t>(end - begin));
    for (std::uint64_t ticket = begin; ticket < end; ++ticket) {
      const Slot& slot = slots_[ticket & (Capacity - 1)];
      if (atomic(slot.mark).load(std::memory_order_acquire) != written(ticket)) continue;
      Words words;
      for (std::size_t i = 0; i < words.size(); ++i) words[i] = atomic(slot.words[i]).load(std::memory_order_acquire);
      if (atomic(slot.mark).load(std::memory_order_relaxed) != written(ticket)) continue;
      result.push_back(std::bit_cast<Span>(words));
    }
    return result;
  }

  /// Forgets all spans pushed before the call.
  void clear() noexcept { floor_.store(head_.load(std::memory_order_acquire), std::memory_order_release); }

 private:
  static constexpr std::size_t kWords = sizeof(Span) / sizeof(std::uint64_t);
  static_assert(sizeof(Span) % sizeof(std::uint64_t) == 0);
  static_assert(std::is_trivially_copyable_v<Span>);
  using Words = std::array<std::uint64_t, kWords>;
  // Plain words behind atomic_ref: an array of atomics is more constant initialisation than clang is ready for.
  struct Slot {
    std::uint64_t mark;
    std::array<std::uint64_t, kWords> words;
  };
  static std::atomic_ref<std::uint64_t> atomic(std::uint64_t& word) { return std::atomic_ref<std::uint64_t>(word); }
  /// For loads only; atomic_ref of C++20 takes no const object.
  static std::atomic_ref<std::uint64_t> atomic(const std::uint64_t& word) {
    return std::atomic_ref<std::uint64_t>(const_cast<std::uint64_t&>(word));
  }
  static constexpr std::uint64_t writing(std::uint64_t ticket) { return 2 * ticket + 1; }
  static constexpr std::uint64_t written(std::uint64_t ticket) { return 2 * ticket + 2; }

  std::atomic<std::uint64_t> head_{0};
  std::atomic<std::uint64_t> floor_{0};
  std::array<Slot, Capacity> slots_{};
};

}  // namespace ddp::trace
