#include <cstring>
#include <new>

#include "core/device_runtime.h"
#include "ddp/core/error.h"

namespace ddp::core {
namespace {

constexpr std::align_val_t kAlignment{64};

/// Work on CPU devices is done when the call returns, so streams and events have nothing to do.
class CpuRuntime final : public DeviceRuntime {
 public:
  int device_count() noexcept override { return kMaxCpuDevices; }
  CUstream_st* create_stream(Device, StreamPriority) override { return nullptr; }
  void destroy_stream(Device, CUstream_st*) noexcept override {}
  void synchronize_stream(StreamView) override {}
  void synchronize_device(Device) override {}
  void* create_event(Device, bool) override { return nullptr; }
  void destroy_event(Device, void*, bool) noexcept override {}
  void record_event(void*, StreamView) override {}
  void wait_event(StreamView, void*) override {}
  bool event_complete(Device, void*) override { return true; }
  void synchronize_event(Device, void*) override {}
  double milliseconds_between(void*, void*) override { return 0; }

  void* allocate(Device, std::size_t bytes) override {
    void* pointer = ::operator new(bytes, kAlignment, std::nothrow);
    DDP_CHECK(pointer != nullptr, OutOfMemory, "the system refused ", bytes, " bytes of host memory");
    return pointer;
  }
  void deallocate(Device, void* pointer, std::size_t) noexcept override { ::operator delete(pointer, kAlignment); }

  void* allocate_pinned(std::size_t) override {
    detail::fail<NotAvailable>("pinned host memory comes from the CUDA runtime");
  }
  void deallocate_pinned(void*) noexcept override {}
  bool started() const noexcept override { return true; }
  PointerInfo describe(const void*) override { return {}; }

  bool copy(void* destination, Device, const void* source, Device, std::size_t bytes, StreamView,
            std::source_location) override {
    if (bytes > 0) std::memmove(destination, source, bytes);
    return false;
  }
  void fill_zero(void* destination, std::size_t bytes, StreamView) override {
    if (bytes > 0) std::memset(destination, 0, bytes);
  }
};

}  // namespace

DeviceRuntime& device_runtime(DeviceType type) {
  static auto* cpu = new CpuRuntime();  // never destroyed: statics and threads may outlive any order of destruction
  return type == DeviceType::cpu ? static_cast<DeviceRuntime&>(*cpu) : cuda_runtime();
}

}  // namespace ddp::core
