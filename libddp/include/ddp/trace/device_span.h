#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "ddp/core/stream.h"
#include "ddp/trace/recorder.h"

/// Spans of time on a device, measured by events in its streams and never by blocking the host.
namespace ddp::trace {

/// From the point that a stream has reached at construction to the point that it (or another stream of the
/// device) has reached at `end`. Kept when spans are on and the present step is sampled; else nothing is put
/// into the stream. The recorder reads the times once the device has passed both points: they appear in
/// `spans()` later, on the host's clock. On a CPU device: a span of host time.
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
  struct Open;
  std::unique_ptr<Open> open_;
};

}  // namespace ddp::trace
