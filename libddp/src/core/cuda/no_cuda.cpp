#include "core/device_runtime.h"
#include "ddp/core/error.h"

namespace ddp::core {
namespace {

/// Stands in where the build has no CUDA: there is no device, so nothing else can be reached.
class NoCudaRuntime final : public DeviceRuntime {
 public:
  int device_count() noexcept override { return 0; }
  CUstream_st* create_stream(Device, StreamPriority) override { refuse(); }
  void destroy_stream(Device, CUstream_st*) noexcept override {}
  void synchronize_stream(StreamView) override { refuse(); }
  void synchronize_device(Device) override { refuse(); }
  void* create_event(Device, bool) override { refuse(); }
  void destroy_event(Device, void*, bool) noexcept override {}
  void record_event(void*, StreamView) override { refuse(); }
  void wait_event(StreamView, void*) override { refuse(); }
  bool event_complete(Device, void*) override { refuse(); }
  void synchronize_event(Device, void*) override { refuse(); }
  double milliseconds_between(void*, void*) override { refuse(); }
  void* allocate(Device, std::size_t) override { refuse(); }
  void deallocate(Device, void*, std::size_t) noexcept override {}
  void* allocate_pinned(std::size_t) override { refuse(); }
  void deallocate_pinned(void*) noexcept override {}
  bool started() const noexcept override { return false; }
  PointerInfo describe(const void*) override { return {}; }
  bool copy(void*, Device, const void*, Device, std::size_t, StreamView, std::source_location) override { refuse(); }
  void fill_zero(void*, std::size_t, StreamView) override { refuse(); }

 private:
  [[noreturn]] static void refuse() {
    detail::fail<NotAvailable>("this build of libddp has no CUDA (configure with DDP_WITH_CUDA=ON)");
  }
};

}  // namespace

DeviceRuntime& cuda_runtime() {
  static auto* runtime = new NoCudaRuntime();  // never destroyed, as the CPU's
  return *runtime;
}

}  // namespace ddp::core
