#include "ddp/trace/device_span.h"

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ddp/core/error.h"
#include "ddp/trace/recorder.h"
#include "trace/device_clock.h"
#include "trace/keep.h"

namespace ddp::trace {

/// A span on its way, with its two events; used again and again.
struct DeviceSpan::Open {
  explicit Open(Device device) : begin(device, true), end(device, true) {}
  Span span;
  Event begin;
  Event end;
};

namespace {

constexpr std::int64_t kSmallestGapNs = 2'000;
constexpr std::int64_t kNextClockNs = 10'000'000'000;
constexpr std::size_t kMostPending = 65536;
constinit std::atomic<std::int64_t> dropped{0};
constinit std::atomic<std::int64_t> pending_count{0};

bool is_phase(SpanKind kind) {
  return kind == SpanKind::forward || kind == SpanKind::backward || kind == SpanKind::optimizer ||
         kind == SpanKind::exposed;
}

}  // namespace

/// The spans of one device.
class DeviceSpans {
 public:
  using Open = DeviceSpan::Open;

  Open* take(Device device) {
    const std::lock_guard lock(mutex_);
    if (!clock_ && !make_clock(device)) return nullptr;
    if (free_.empty()) {
      if (pending_.size() >= kMostPending) return nullptr;
      all_.push_back(std::make_unique<Open>(device));
      free_.reserve(all_.size());  // so that giving back needs no memory
      pending_.reserve(all_.size());
      return all_.back().get();
    }
    Open* open = free_.back();
    free_.pop_back();
    return open;
  }

  void give_back(Open* open) {
    const std::lock_guard lock(mutex_);
    free_.push_back(open);
  }

  void ended(Open* open) {
    const std::lock_guard lock(mutex_);
    pending_.push_back(open);
    pending_count.fetch_add(1, std::memory_order_relaxed);
  }

  void collect() {
    const std::lock_guard lock(mutex_);
    if (!clock_) return;
    clock_->tick();
    std::size_t left = 0;
    std::size_t seen = 0;
    const auto forget_seen = [&] {
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(left),
                     pending_.begin() + static_cast<std::ptrdiff_t>(seen));
      pending_count.fetch_sub(static_cast<std::int64_t>(seen - left), std::memory_order_relaxed);
    };
    try {
      for (; seen < pending_.size(); ++seen) {
        Open* open = pending_[seen];
        if (!open->end.is_complete() || !open->begin.is_complete()) {
          pending_[left++] = open;
          continue;
        }
        take_in(*open);
        free_.push_back(open);
      }
    } catch (...) {
      forget_seen();  // else what is free already would become free once more
      throw;
    }
    forget_seen();
  }

  void drop() {
    const std::lock_guard lock(mutex_);
    pending_count.fetch_sub(static_cast<std::int64_t>(pending_.size()), std::memory_order_relaxed);
    free_.insert(free_.end(), pending_.begin(), pending_.end());
    pending_.clear();
    phases_.clear();
  }

 private:
  /// False, now and for some time, when the device does not answer. Spans are not worth more of a wait.
  bool make_clock(Device device) {
    if (now_ns() < no_clock_until_ns_) return false;
    try {
      clock_ = std::make_unique<DeviceClock>(device);
      return true;
    } catch (const TimeoutError&) {
      no_clock_until_ns_ = now_ns() + kNextClockNs;
      return false;
    }
  }

  void take_in(Open& open) {
    Span span = open.span;
    span.begin_ns = clock_->host_ns(open.begin);
    // From one clock reading, so that a length does not depend on the anchor.
    span.end_ns = span.begin_ns + static_cast<std::int64_t>(open.end.milliseconds_since(open.begin) * 1e6);
    if (is_phase(span.kind)) note_gap(span);
    keep(span, true);
  }

  // Between two phases of one stream; `exposed` lies inside backward.
  void note_gap(const Span& span) {
    for (Phase& last : phases_) {
      if (last.track != span.track) continue;
      if (span.step - last.step <= 1 && span.begin_ns - last.end_ns >= kSmallestGapNs) {
        Span gap = span;
        gap.kind = SpanKind::host_gap;
        gap.begin_ns = last.end_ns;
        gap.end_ns = span.begin_ns;
        keep(gap, true);
      }
      if (span.end_ns > last.end_ns) last = {span.track, span.step, span.end_ns};
      return;
    }
    phases_.push_back({span.track, span.step, span.end_ns});
  }

  struct Phase {
    std::uint16_t track;
    std::int64_t step;
    std::int64_t end_ns;
  };
  std::mutex mutex_;
  std::unique_ptr<DeviceClock> clock_;
  std::int64_t no_clock_until_ns_ = 0;
  std::vector<std::unique_ptr<Open>> all_;
  std::vector<Open*> free_;
  std::vector<Open*> pending_;  // in order of their ends on the host
  std::vector<Phase> phases_;   // the last one of each stream
};

namespace {

using AllDevices = std::array<DeviceSpans, kMaxCpuDevices>;
constinit std::atomic<AllDevices*> made_devices{nullptr};

/// Never destroyed: streams of statics may end spans while the process ends.
DeviceSpans& spans_of(Device device) {
  static auto* devices = [] {
    auto* made = new AllDevices();
    made_devices.store(made, std::memory_order_release);
    return made;
  }();
  return (*devices)[static_cast<std::size_t>(device.index)];
}

}  // namespace

DeviceSpan::DeviceSpan(SpanKind kind, StreamView stream, std::string_view label, std::int32_t lane) noexcept {
  if (stream.device().is_cpu() || !sampled()) return;
  Open* open = nullptr;
  try {
    open = spans_of(stream.device()).take(stream.device());
    if (open != nullptr) {
      open->span = {};
      open->span.kind = kind;
      open->span.track = stream_track(stream);
      open->span.lane = lane;
      open->span.step = current_step();
      set_label(open->span, label);
      open->begin.record(stream);
      open_ = open;
      return;
    }
  } catch (...) {  // the device is in trouble, or there is no memory: the program will hear of it elsewhere
    if (open != nullptr) spans_of(stream.device()).give_back(open);
  }
  dropped.fetch_add(1, std::memory_order_relaxed);
}

DeviceSpan::DeviceSpan(DeviceSpan&& other) noexcept : open_(std::exchange(other.open_, nullptr)) {}

DeviceSpan& DeviceSpan::operator=(DeviceSpan&& other) noexcept {
  std::swap(open_, other.open_);
  return *this;
}

DeviceSpan::~DeviceSpan() {
  if (open_ != nullptr) spans_of(open_->begin.device()).give_back(open_);
}

void DeviceSpan::end(StreamView stream) noexcept {
  if (open_ == nullptr) return;
  Open* open = std::exchange(open_, nullptr);
  try {
    open->end.record(stream);
    spans_of(open->begin.device()).ended(open);
  } catch (...) {
    spans_of(open->begin.device()).give_back(open);
    dropped.fetch_add(1, std::memory_order_relaxed);
  }
}

PhaseSpan::PhaseSpan(SpanKind kind, Device device, std::string_view label) noexcept
    : host_(kind, label), stream_(current_stream(device)), device_(kind, stream_, label) {}

PhaseSpan::~PhaseSpan() { device_.end(stream_); }

std::int64_t dropped_spans() noexcept { return dropped.load(std::memory_order_relaxed); }

std::int64_t pending_device_spans() noexcept { return pending_count.load(std::memory_order_relaxed); }

void collect_device_spans() noexcept {
  AllDevices* devices = made_devices.load(std::memory_order_acquire);
  if (devices == nullptr) return;
  for (DeviceSpans& device : *devices) {
    try {
      device.collect();
    } catch (...) {  // a device in trouble answers every query with its error
      device.drop();
    }
  }
}

void drop_device_spans() noexcept {
  AllDevices* devices = made_devices.load(std::memory_order_acquire);
  if (devices == nullptr) return;
  for (DeviceSpans& device : *devices) device.drop();
}

}  // namespace ddp::trace
