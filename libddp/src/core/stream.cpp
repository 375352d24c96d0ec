#include "ddp/core/stream.h"

#include <array>
#include <chrono>
#include <utility>

#include "core/device_runtime.h"
#include "core/observer.h"
#include "ddp/core/error.h"

namespace ddp {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// The thread's current streams by device index; null means the device's default stream.
CUstream_st*& current_native(Device device) {
  static thread_local std::array<CUstream_st*, kMaxCpuDevices> cuda_streams{};
  static thread_local CUstream_st* none = nullptr;
  if (device.is_cpu()) {
    none = nullptr;
    return none;
  }
  DDP_CHECK(device.index >= 0 && device.index < kMaxCpuDevices, InvalidArgument, "no device ", device);
  return cuda_streams[static_cast<std::size_t>(device.index)];
}

}  // namespace

void StreamView::wait(const Event& event) const {
  if (device_.is_cpu()) {
    event.synchronize();  // work that follows on the CPU follows on the host
    return;
  }
  if (event.device().is_cpu() || !event.was_recorded()) return;  // on a CPU: complete once recorded
  core::device_runtime(device_.type).wait_event(*this, event.native());
}

void StreamView::wait_for(StreamView other) const {
  if (*this == other || other.device().is_cpu()) return;
  Event event(other.device());
  event.record(other);
  wait(event);
}

void StreamView::synchronize(std::source_location where) const {
  if (device_.is_cpu()) return;
  const core::BlockingScope scope("stream synchronize", device_, where);
  core::device_runtime(device_.type).synchronize_stream(*this);
}

Stream::Stream(Device device, StreamPriority priority) : view_(device) {
  core::check_device(device);
  view_ = StreamView(device, core::device_runtime(device.type).create_stream(device, priority));
  owned_ = true;
}

Stream::Stream(Stream&& other) noexcept : view_(other.view_), owned_(std::exchange(other.owned_, false)) {}

Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(view_, other.view_);
  std::swap(owned_, other.owned_);
  return *this;
}

Stream::~Stream() {
  if (owned_) core::device_runtime(view_.device().type).destroy_stream(view_.device(), view_.native());
}

Event::Event(Device device, bool timing) : device_(device), timing_(timing) {
  core::check_device(device);
  native_ = core::device_runtime(device.type).create_event(device, timing);
}

Event::Event(Event&& other) noexcept
    : device_(other.device_),
      timing_(other.timing_),
      native_(std::exchange(other.native_, nullptr)),
      host_ns_(other.host_ns_) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(timing_, other.timing_);
  std::swap(native_, other.native_);
  std::swap(host_ns_, other.host_ns_);
  return *this;
}

Event::~Event() {
  if (native_ != nullptr) core::device_runtime(device_.type).destroy_event(device_, native_, timing_);
}

void Event::record(StreamView stream) {
  DDP_CHECK(stream.device() == device_, InvalidArgument, "an event of ", device_, " cannot be recorded on a stream of ",
            stream.device());
  host_ns_ = now_ns();
  if (!device_.is_cpu()) core::device_runtime(device_.type).record_event(native_, stream);
}

bool Event::is_complete() const {
  if (device_.is_cpu() || host_ns_ == 0) return true;
  return core::device_runtime(device_.type).event_complete(device_, native_);
}

void Event::synchronize(std::source_location where) const {
  if (device_.is_cpu() || host_ns_ == 0) return;
  const core::BlockingScope scope("event synchronize", device_, where);
  core::device_runtime(device_.type).synchronize_event(device_, native_);
}

double Event::milliseconds_since(const Event& earlier) const {
  DDP_CHECK(host_ns_ != 0 && earlier.host_ns_ != 0, InvalidArgument, "milliseconds_since needs two recorded events");
  if (device_.is_cpu()) return static_cast<double>(host_ns_ - earlier.host_ns_) * 1e-6;
  return core::device_runtime(device_.type).milliseconds_between(earlier.native_, native_);
}

StreamView current_stream(Device device) { return {device, current_native(device)}; }

StreamGuard::StreamGuard(StreamView stream) : previous_(current_stream(stream.device())) {
  current_native(stream.device()) = stream.native();
}

StreamGuard::~StreamGuard() { current_native(previous_.device()) = previous_.native(); }

}  // namespace ddp
