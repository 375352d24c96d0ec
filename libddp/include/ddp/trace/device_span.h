#pragma once

#include <cstdint>
#include <string_view>

#include "ddp/core/stream.h"
#include "ddp/trace/recorder.h"

/// Spans of time on a device, measured by events in its streams and never by blocking the host.
namespace ddp::trace {

/// From the point that a stream has reached at construction to the point that it (or another stream of the
/// device) has reached at `end`. Kept when spans are on and the present step is sampled; else nothing is put
/// into the stream. The recorder reads the times once the device has passed both points: they appear in
/// `spans()` later, on the host's clock (aligned when spans are first used on a device, which blocks the host for
/// some microseconds, and again every second without blocking). Nothing on a CPU device, whose phases are host
/// spans.
///
/// Move only. Destroyed without `end`, it keeps nothing. Not thread safe; one object may be moved to another
/// thread. Never throws: without room for it the span is dropped and counted.
class DeviceSpan {
 public:
  /// Begins nothing.
  DeviceSpan() = default;
  /// The label is copied. `lane` as in Span.
  DeviceSpan(SpanKind kind, StreamView stream, std::string_view label = {}, std::int32_t lane = 0) noexcept;
  DeviceSpan(DeviceSpan&& other) noexcept;
  DeviceSpan& operator=(DeviceSpan&& other) noexcept;
  DeviceSpan(const DeviceSpan&) = delete;
  DeviceSpan& operator=(const DeviceSpan&) = delete;
  ~DeviceSpan();

  /// Ends at the present end of `stream`. A second call, or one on an empty span, does nothing.
  void end(StreamView stream) noexcept;

 private:
  friend class DeviceSpans;
  struct Open;
  Open* open_ = nullptr;
};

/// A phase of a step (forward, backward, optimiser) on the calling thread and on the device's current stream: one
/// span each, from construction to the end of the scope. The label must outlive the scope.
class PhaseSpan {
 public:
  PhaseSpan(SpanKind kind, Device device, std::string_view label = {}) noexcept;
  ~PhaseSpan();
  PhaseSpan(const PhaseSpan&) = delete;
  PhaseSpan& operator=(const PhaseSpan&) = delete;

 private:
  ScopedSpan host_;
  StreamView stream_;
  DeviceSpan device_;
};

/// What a stream is called in records: "cuda:0 lane 1". At most 31 bytes are kept.
void name_track(StreamView stream, std::string_view name) noexcept;
/// The number of a stream's track.
std::uint16_t stream_track(StreamView stream) noexcept;
/// Spans that found no room.
std::int64_t dropped_spans() noexcept;

}  // namespace ddp::trace
