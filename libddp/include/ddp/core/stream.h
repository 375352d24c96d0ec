#pragma once

#include <cstdint>
#include <source_location>

#include "ddp/core/device.h"

struct CUstream_st;  // what cudaStream_t points to; declared so that no CUDA header is needed here

/// Streams order work on a device; events mark points in a stream. On CPU devices operations are
/// synchronous, so CPU streams are markers without effect and every event is complete once recorded.
namespace ddp {

class Event;

/// A stream that somebody else owns. Cheap to copy.
class StreamView {
 public:
  /// The device's default stream.
  explicit constexpr StreamView(Device device) : device_(device) {}
  constexpr StreamView(Device device, CUstream_st* native) : device_(device), native_(native) {}

  constexpr Device device() const { return device_; }
  /// The cudaStream_t, or null on a CPU device.
  constexpr CUstream_st* native() const { return native_; }

  /// Later work of this stream waits for the event; nothing happens for one never recorded. Does not block the host.
  void wait(const Event& event) const;
  /// Later work of this stream waits for the work `other` has so far. Does not block the host.
  void wait_for(StreamView other) const;
  /// Blocks the host until the stream's work so far is done.
  void synchronize(std::source_location where = std::source_location::current()) const;

  friend constexpr bool operator==(const StreamView&, const StreamView&) = default;

 private:
  Device device_;
  CUstream_st* native_ = nullptr;
};

enum class StreamPriority : std::uint8_t { normal, high };

/// Owns a stream. Move only. Destroying it does not block; queued work still runs. The device's stream is kept and
/// may serve a later Stream once it is idle. (A stream of your own that is used through a StreamView should outlive
/// the tensors made on it; before you destroy it, `release_cached_memory` returns what is cached for it.)
class Stream {
 public:
  explicit Stream(Device device, StreamPriority priority = StreamPriority::normal);
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  StreamView view() const { return view_; }
  operator StreamView() const { return view_; }  // NOLINT(google-explicit-constructor): owner to view
  Device device() const { return view_.device(); }

 private:
  StreamView view_;
  bool owned_ = false;
};

/// A point in a stream. Move only. Cheap to make and to drop: the device's events are used again.
class Event {
 public:
  /// `timing` keeps the device time of the point (see `milliseconds_since`).
  explicit Event(Device device, bool timing = false);
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();

  Device device() const { return device_; }
  /// Marks the stream's present end. Does not block.
  void record(StreamView stream);
  /// True when everything before the mark is done, and for an event never recorded. Does not block.
  bool is_complete() const;
  /// Blocks the host until the mark is reached.
  void synchronize(std::source_location where = std::source_location::current()) const;
  /// Device time between two recorded, complete timing events, in milliseconds. On CPU: host time of record.
  double milliseconds_since(const Event& earlier) const;
  bool was_recorded() const { return host_ns_ != 0; }
  void* native() const { return native_; }

 private:
  Device device_;
  bool timing_ = false;
  void* native_ = nullptr;
  std::int64_t host_ns_ = 0;
};

/// The calling thread's current stream of a device: where operations put their work.
StreamView current_stream(Device device);

/// Makes a stream the thread's current one for its device until the end of the scope.
class StreamGuard {
 public:
  explicit StreamGuard(StreamView stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  StreamView previous_;
};

}  // namespace ddp
