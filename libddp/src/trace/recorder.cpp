#include "ddp/trace/recorder.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <new>
#include <thread>

#include "ddp/core/device.h"
#include "ddp/core/error.h"
#include "trace/core_observer.h"
#include "trace/keep.h"
#include "trace/nvtx/nvtx.h"
#include "trace/span_ring.h"
#include "trace/step_ring.h"

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

constinit std::atomic<std::int64_t> sample_first{Sampling{}.first};
constinit std::atomic<std::int64_t> sample_every{Sampling{}.every};
constinit std::atomic<std::int64_t> sample_from{0};  // the step at which `first` begins to count, less one
constinit std::atomic<bool> step_sampled{true};

// Made by the first set_enabled(true), so that record does not allocate and who keeps no spans pays no memory.
// Never destroyed: threads may record while the process ends.
struct Kept {
  SpanRing<65536> spans;
  StepRing steps;
};
constinit std::atomic<Kept*> kept{nullptr};

bool make_room() noexcept {
  if (kept.load(std::memory_order_acquire) != nullptr) return true;
  Kept* made = new (std::nothrow) Kept();
  if (made == nullptr) return false;
  Kept* expected = nullptr;
  if (!kept.compare_exchange_strong(expected, made, std::memory_order_acq_rel)) delete made;
  return true;
}

bool keeps_step(std::int64_t number) noexcept {
  const std::int64_t since = number - sample_from.load(std::memory_order_relaxed);
  const std::int64_t first = sample_first.load(std::memory_order_relaxed);
  const std::int64_t every = sample_every.load(std::memory_order_relaxed);
  return since <= first || (every > 0 && (since - first) % every == 0);
}

// -1: not asked yet.
constinit std::atomic<int> nvtx_on{-1};
bool ranges_wanted() noexcept {
  int on = nvtx_on.load(std::memory_order_relaxed);
  if (on < 0) {
    on = nvtx::wanted() ? 1 : 0;
    nvtx_on.store(on, std::memory_order_relaxed);
  }
  return on != 0;
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
  spans_enabled.store(on && make_room(), std::memory_order_relaxed);
}

void set_sampling(Sampling sampling) {
  DDP_CHECK(sampling.first >= 0 && sampling.every >= 0, InvalidArgument, "set_sampling: first ", sampling.first,
            ", every ", sampling.every, "; both must be at least 0");
  sample_first.store(sampling.first, std::memory_order_relaxed);
  sample_every.store(sampling.every, std::memory_order_relaxed);
  sample_from.store(current_step(), std::memory_order_relaxed);
}

bool sampled() noexcept { return enabled() && step_sampled.load(std::memory_order_relaxed); }

void set_nvtx(bool on) noexcept { nvtx_on.store(on ? 1 : 0, std::memory_order_relaxed); }

std::int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void set_label(Span& span, std::string_view label) noexcept {
  label.copy(span.label, cut_length(label, sizeof span.label - 1));
}

void keep(const Span& span, bool device) noexcept {
  Kept* room = kept.load(std::memory_order_acquire);
  if (room == nullptr) return;
  room->spans.push(span);
  room->steps.add(span.step, span.kind, span.end_ns - span.begin_ns, device);
}

void record(SpanKind kind, std::int64_t begin_ns, std::int64_t end_ns, std::string_view label,
            std::int32_t lane) noexcept {
  if (!sampled()) return;
  Span span;
  span.kind = kind;
  span.track = host_track();
  span.lane = lane;
  span.step = current_step();
  span.begin_ns = begin_ns;
  span.end_ns = end_ns;
  set_label(span, label);
  keep(span, false);
}

std::int64_t begin_step() noexcept {
  listen_to_core();
  const std::int64_t next = step.fetch_add(1, std::memory_order_relaxed) + 1;
  const bool keeps = keeps_step(next);
  step_sampled.store(keeps, std::memory_order_relaxed);
  if (!enabled()) return next;
  collect_device_spans();
  if (Kept* room = kept.load(std::memory_order_acquire)) room->steps.begin(next, now_ns(), keeps, snapshot());
  return next;
}

std::int64_t current_step() noexcept { return step.load(std::memory_order_relaxed); }

std::vector<Span> spans() {
  collect_device_spans();
  const Kept* room = kept.load(std::memory_order_acquire);
  return room != nullptr ? room->spans.read() : std::vector<Span>();
}

std::vector<StepRecord> steps() {
  collect_device_spans();
  const Kept* room = kept.load(std::memory_order_acquire);
  return room != nullptr ? room->steps.read() : std::vector<StepRecord>();
}

void clear() {
  drop_device_spans();
  if (Kept* room = kept.load(std::memory_order_acquire)) {
    room->spans.clear();
    room->steps.clear(current_step() + 1);  // the open step with them
  }
}

bool flush(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  collect_device_spans();
  while (pending_device_spans() > 0) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    collect_device_spans();
  }
  return true;
}

ScopedSpan::ScopedSpan(SpanKind kind, std::string_view label, std::int32_t lane) noexcept
    : kind_(kind), label_(label), lane_(lane), begin_ns_(sampled() ? now_ns() : 0) {
  if (ranges_wanted()) [[unlikely]] {
    nvtx::push(name(kind), label);
    range_ = true;
  }
}

ScopedSpan::~ScopedSpan() {
  if (range_) nvtx::pop();
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
