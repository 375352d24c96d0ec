#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "ddp/trace/recorder.h"

namespace ddp::trace {

/// The newest step records. One thread opens and closes steps; any thread adds span times meanwhile, without
/// locks; a reader may come at any time. A slot belongs to the step whose number it carries: times of older
/// steps, which have been written over, are dropped.
class StepRing {
 public:
  static constexpr std::int64_t kCapacity = 4096;

  /// Ends the open step and opens the next.
  void begin(std::int64_t step, std::int64_t now_ns, bool sampled, const CounterSnapshot& counters) noexcept {
    close(now_ns, counters);
    Slot& slot = slot_of(step);
    slot.step.store(0, std::memory_order_release);
    for (auto& value : slot.host_ns) value.store(0, std::memory_order_relaxed);
    for (auto& value : slot.device_ns) value.store(0, std::memory_order_relaxed);
    for (std::size_t i = 0; i < kCounters; ++i) {
      slot.counters[i].store(counters.values[i], std::memory_order_relaxed);
    }
    slot.begin_ns.store(now_ns, std::memory_order_relaxed);
    slot.end_ns.store(0, std::memory_order_relaxed);
    slot.sampled.store(sampled, std::memory_order_relaxed);
    slot.step.store(step, std::memory_order_release);
    open_.store(step, std::memory_order_relaxed);
  }

  void add(std::int64_t step, SpanKind kind, std::int64_t nanoseconds, bool device) noexcept {
    Slot& slot = slot_of(step);
    if (step <= 0 || slot.step.load(std::memory_order_acquire) != step) return;
    auto& times = device ? slot.device_ns : slot.host_ns;
    times[static_cast<std::size_t>(kind)].fetch_add(nanoseconds, std::memory_order_relaxed);
  }

  /// Finished steps, oldest first.
  std::vector<StepRecord> read() const {
    std::vector<StepRecord> result;
    const std::int64_t newest = open_.load(std::memory_order_relaxed);
    const std::int64_t oldest = std::max<std::int64_t>(floor_.load(std::memory_order_relaxed), newest - kCapacity + 1);
    for (std::int64_t step = oldest; step < newest; ++step) {
      const Slot& slot = slot_of(step);
      if (step <= 0 || slot.step.load(std::memory_order_acquire) != step) continue;
      StepRecord record;
      record.step = step;
      record.begin_ns = slot.begin_ns.load(std::memory_order_relaxed);
      record.end_ns = slot.end_ns.load(std::memory_order_relaxed);
      record.sampled = slot.sampled.load(std::memory_order_relaxed);
      for (std::size_t i = 0; i < kCounters; ++i) {
        record.counters.values[i] = slot.counters[i].load(std::memory_order_relaxed);
      }
      for (std::size_t i = 0; i < kKinds; ++i) {
        const std::int64_t on_device = slot.device_ns[i].load(std::memory_order_relaxed);
        record.span_ns[i] = on_device != 0 ? on_device : slot.host_ns[i].load(std::memory_order_relaxed);
      }
      if (record.end_ns != 0 && slot.step.load(std::memory_order_acquire) == step) result.push_back(record);
    }
    return result;
  }

  /// Forgets the steps before `step`.
  void clear(std::int64_t step) noexcept { floor_.store(step, std::memory_order_relaxed); }

 private:
  static constexpr auto kCounters = static_cast<std::size_t>(Counter::count_);
  static constexpr auto kKinds = static_cast<std::size_t>(SpanKind::count_);
  struct Slot {
    std::atomic<std::int64_t> step{0};
    std::atomic<std::int64_t> begin_ns{0};
    std::atomic<std::int64_t> end_ns{0};
    std::atomic<bool> sampled{false};
    std::array<std::atomic<std::int64_t>, kCounters> counters{};  // at the begin, and from the end on the difference
    std::array<std::atomic<std::int64_t>, kKinds> host_ns{};
    std::array<std::atomic<std::int64_t>, kKinds> device_ns{};
  };
  Slot& slot_of(std::int64_t step) { return slots_[static_cast<std::size_t>(step % kCapacity)]; }
  const Slot& slot_of(std::int64_t step) const { return slots_[static_cast<std::size_t>(step % kCapacity)]; }

  void close(std::int64_t now_ns, const CounterSnapshot& counters) noexcept {
    const std::int64_t step = open_.load(std::memory_order_relaxed);
    Slot& slot = slot_of(step);
    if (step <= 0 || slot.step.load(std::memory_order_relaxed) != step) return;
    for (std::size_t i = 0; i < kCounters; ++i) {
      const std::int64_t before = slot.counters[i].load(std::memory_order_relaxed);
      slot.counters[i].store(counters.values[i] - before, std::memory_order_relaxed);
    }
    slot.end_ns.store(now_ns, std::memory_order_relaxed);
  }

  std::atomic<std::int64_t> open_{0};
  std::atomic<std::int64_t> floor_{0};
  std::array<Slot, kCapacity> slots_{};
};

}  // namespace ddp::trace
