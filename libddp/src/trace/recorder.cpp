#include "ddp/trace/recorder.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <new>

#include "ddp/core/device.h"
#include "trace/core_observer.h"
#include "trace/span_ring.h"

namespace ddp::trace {
namespace {

constexpr auto kCounters = static_cast<std::size_t>(Counter::count_);

// Apart by a cache line, so that threads counting different things do not disturb each other.
struct alignas(64) PaddedCounter {
  std::atomic<std::int64_t> value{0};
};
constinit std::array<PaddedCounter, kCounters> counters{};
constinit std::atomic<bool> spans_enabled{false};
constinit std::atomic<std::int64_t> step{0};

// Made by the first set_enabled(true), so that record does not allocate and who keeps no spans pays no memory.
// Never destroyed: threads may record while the process ends.
using Ring = SpanRing<65536>;
constinit std::atomic<Ring*> ring{nullptr};

bool make_ring() noexcept {
  if (ring.load(std::memory_order_acquire) != nullptr) return true;
  Ring* made = new (std::nothrow) Ring();
  if (made == nullptr) return false;
  Ring* expected = nullptr;
  if (!ring.compare_exchange_strong(expected, made, std::memory_order_acq_rel)) delete made;
  return true;
}

// A label that was cut inside a UTF-8 character would not be valid text.
std::size_t cut_length(std::string_view label, std::size_t room) {
  if (label.size() <= room) return label.size();
  std::size_t length = room;
  while (length > 0 && (static_cast<unsigned char>(label[length]) & 0xC0U) == 0x80U) --length;
  return length;
}

// The allocators count by themselves, under the lock that they take anyway; asking them costs nothing on
// the way of an allocation.
std::int64_t allocations() {
  std::int64_t sum = 0;
  for (const DeviceType type : {DeviceType::cpu, DeviceType::cuda}) {
    for (int index = 0; index < device_count(type); ++index) sum += memory_stats(Device{type, index}).allocations;
  }
  return sum;
}

}  // namespace

void count(Counter counter, std::int64_t amount) noexcept {
  listen_to_core();
  counters[static_cast<std::size_t>(counter)].value.fetch_add(amount, std::memory_order_relaxed);
}

std::int64_t total(Counter counter) noexcept {
  listen_to_core();
  const std::int64_t counted = counters[static_cast<std::size_t>(counter)].value.load(std::memory_order_relaxed);
  return counter == Counter::allocations ? counted + allocations() : counted;
}

bool enabled() noexcept { return spans_enabled.load(std::memory_order_relaxed); }

void set_enabled(bool on) noexcept {
  listen_to_core();
  spans_enabled.store(on && make_ring(), std::memory_order_relaxed);
}

std::int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void record(SpanKind kind, std::int64_t begin_ns, std::int64_t end_ns, std::string_view label,
            std::int32_t lane) noexcept {
  Ring* kept = enabled() ? ring.load(std::memory_order_acquire) : nullptr;
  if (kept == nullptr) return;
  Span span;
  span.kind = kind;
  span.lane = lane;
  span.step = current_step();
  span.begin_ns = begin_ns;
  span.end_ns = end_ns;
  label.copy(span.label, cut_length(label, sizeof span.label - 1));
  kept->push(span);
}

std::int64_t begin_step() noexcept {
  listen_to_core();
  return step.fetch_add(1, std::memory_order_relaxed) + 1;
}

std::int64_t current_step() noexcept { return step.load(std::memory_order_relaxed); }

std::vector<Span> spans() {
  const Ring* kept = ring.load(std::memory_order_acquire);
  return kept != nullptr ? kept->read() : std::vector<Span>();
}

void clear() {
  if (Ring* kept = ring.load(std::memory_order_acquire)) kept->clear();
}

ScopedSpan::ScopedSpan(SpanKind kind, std::string_view label, std::int32_t lane) noexcept
    : kind_(kind), label_(label), lane_(lane), begin_ns_(enabled() ? now_ns() : 0) {}

ScopedSpan::~ScopedSpan() {
  if (begin_ns_ != 0) record(kind_, begin_ns_, now_ns(), label_, lane_);
}

CounterSnapshot snapshot() noexcept {
  CounterSnapshot result;
  for (std::size_t i = 0; i < kCounters; ++i) result.values[i] = total(static_cast<Counter>(i));
  return result;
}

CounterSnapshot operator-(const CounterSnapshot& later, const CounterSnapshot& earlier) {
  CounterSnapshot result;
  for (std::size_t i = 0; i < kCounters; ++i) result.values[i] = later.values[i] - earlier.values[i];
  return result;
}

}  // namespace ddp::trace
