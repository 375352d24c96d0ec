#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>

#include "ddp/core/stream.h"

/// The seam between core and a kind of device: one implementation each for CPU (device_runtime_cpu.cpp)
/// and CUDA (cuda/runtime.cpp, or cuda/no_cuda.cpp in a build without it).
namespace ddp::core {

enum class PointerKind : std::uint8_t { pageable, pinned, device, managed };

struct PointerInfo {
  PointerKind kind = PointerKind::pageable;
  int device = -1;  // of `device` and `managed`
};

class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;

  /// Usable devices; 0 when there is no driver or GPU. Never throws.
  virtual int device_count() noexcept = 0;

  /// Streams are kept and handed out again when all their work is done, so that memory cached for a stream stays
  /// in order with whoever has it next.
  virtual CUstream_st* create_stream(Device device, StreamPriority priority) = 0;
  virtual void destroy_stream(Device device, CUstream_st* stream) noexcept = 0;
  virtual void synchronize_stream(StreamView stream) = 0;
  virtual void synchronize_device(Device device) = 0;

  virtual void* create_event(Device device, bool timing) = 0;
  /// Back to where create_event takes it from; `timing` as there.
  virtual void destroy_event(Device device, void* event, bool timing) noexcept = 0;
  virtual void record_event(void* event, StreamView stream) = 0;
  virtual void wait_event(StreamView stream, void* event) = 0;
  virtual bool event_complete(Device device, void* event) = 0;
  virtual void synchronize_event(Device device, void* event) = 0;
  virtual double milliseconds_between(void* earlier, void* later) = 0;

  /// System memory of the device, uncached and at least 64-byte aligned. Throws OutOfMemory.
  virtual void* allocate(Device device, std::size_t bytes) = 0;
  virtual void deallocate(Device device, void* pointer, std::size_t bytes) noexcept = 0;

  /// Page-locked host memory that every device can reach. Throws OutOfMemory.
  virtual void* allocate_pinned(std::size_t bytes) = 0;
  virtual void deallocate_pinned(void* pointer) noexcept = 0;

  /// Whether memory or a stream was ever taken from it. While not, some calls would start the device.
  virtual bool started() const noexcept = 0;
  /// What is at an address. Memory that the runtime knows nothing of is pageable.
  virtual PointerInfo describe(const void* pointer) = 0;

  /// Copies between any two memories that this runtime can reach, in order of `stream`. Where the host's side is
  /// pageable the host blocks, which is reported to the observer with `where`. True when the copy may go on after the
  /// return, so that the memories must stay as they are until the stream has passed it.
  virtual bool copy(void* destination, Device to, const void* source, Device from, std::size_t bytes, StreamView stream,
                    std::source_location where = std::source_location::current()) = 0;
  virtual void fill_zero(void* destination, std::size_t bytes, StreamView stream) = 0;
};

/// The runtime of a device type. For CUDA in a build without CUDA: one with zero devices whose other
/// functions throw NotAvailable.
DeviceRuntime& device_runtime(DeviceType type);

/// Implemented once in cuda/runtime.cpp and once in cuda/no_cuda.cpp.
DeviceRuntime& cuda_runtime();

/// Throws InvalidArgument unless the device can be used; the text gives the number there are.
void check_device(Device device);

}  // namespace ddp::core
