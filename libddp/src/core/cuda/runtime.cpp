// Devices, streams, events, memory and copies over the CUDA runtime.
#include <cuda.h>  // types only: the driver's library is not linked
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <source_location>
#include <string_view>

#include "core/cuda/check.h"
#include "core/cuda/device_guard.h"
#include "core/cuda/native_pools.h"
#include "core/device_runtime.h"
#include "core/observer.h"
#include "ddp/core/error.h"

namespace ddp::core {
namespace cuda {

void fail_cuda(cudaError_t error, const char* expression, const char* file, int line) {
  // A failed call also leaves its error for the next cudaGetLastError; it is reported here and only here.
  static_cast<void>(cudaGetLastError());
  std::string_view name = file;
  name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
  detail::fail<DeviceError>(expression, ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ", ",
                            static_cast<int>(error), ") at ", name, ":", line);
}

namespace {

using PrimaryContextState = CUresult (*)(CUdevice, unsigned int*, int*);

/// The driver's function by way of the runtime, so that nothing has to be linked. Null where it cannot be had.
PrimaryContextState primary_context_state() noexcept {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &function, 7000, cudaEnableDefault, &found);
#else
  const cudaError_t error = cudaGetDriverEntryPoint("cuDevicePrimaryCtxGetState", &function, cudaEnableDefault, &found);
#endif
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  return reinterpret_cast<PrimaryContextState>(function);
}

}  // namespace

void DeviceGuard::restore(int previous) noexcept {
  static const PrimaryContextState state = primary_context_state();
  unsigned int flags = 0;
  int active = 1;
  if (state != nullptr && state(previous, &flags, &active) == CUDA_SUCCESS && active == 0) return;
  static_cast<void>(cudaSetDevice(previous));
}

}  // namespace cuda

namespace {

using cuda::DeviceGuard;

cudaEvent_t as_event(void* event) { return static_cast<cudaEvent_t>(event); }

class Cuda final : public DeviceRuntime {
 public:
  int device_count() noexcept override {
    static const int count = count_devices();  // it cannot change, and is asked for by every allocation
    return count;
  }

  static int count_devices() noexcept {
    int count = 0;
    // Without a driver the call leaves `count` as it was. Other errors (a driver in trouble, devices hidden or
    // busy) also mean that nothing can be used; the first call that needs a device then says why.
    if (cudaGetDeviceCount(&count) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return 0;
    }
    return count;
  }

  CUstream_st* create_stream(Device device, StreamPriority priority) override {
    const DeviceGuard guard(device);
    note_used(device);
    return cuda::native_pools(device).streams.take(priority);
  }

  void destroy_stream(Device device, CUstream_st* stream) noexcept override {
    try {
      const DeviceGuard guard(device);
      cuda::native_pools(device).streams.give(stream);
    } catch (...) {  // NOLINT(bugprone-empty-catch): a device in trouble, or the end of the process
    }
  }

  void synchronize_stream(StreamView stream) override {
    const DeviceGuard guard(stream.device());
    DDP_CUDA_CHECK(cudaStreamSynchronize(stream.native()));
  }

  void synchronize_device(Device device) override {
    const DeviceGuard guard(device);
    DDP_CUDA_CHECK(cudaDeviceSynchronize());
  }

  void* create_event(Device device, bool timing) override {
    const DeviceGuard guard(device);
    return cuda::native_pools(device).events.take(timing);
  }

  void destroy_event(Device device, void* event, bool timing) noexcept override {
    cuda::native_pools(device).events.give(as_event(event), timing);
  }

  void record_event(void* event, StreamView stream) override {
    const DeviceGuard guard(stream.device());
    DDP_CUDA_CHECK(cudaEventRecord(as_event(event), stream.native()));
  }

  void wait_event(StreamView stream, void* event) override {
    const DeviceGuard guard(stream.device());
    DDP_CUDA_CHECK(cudaStreamWaitEvent(stream.native(), as_event(event), 0));
  }

  // With the device current, here and below: in a thread that has used none the calls would make a context on device 0.
  bool event_complete(Device device, void* event) override {
    const DeviceGuard guard(device);
    const cudaError_t state = cudaEventQuery(as_event(event));
    if (state == cudaSuccess) return true;
    if (state != cudaErrorNotReady) cuda::fail_cuda(state, "cudaEventQuery", __FILE__, __LINE__);
    static_cast<void>(cudaGetLastError());
    return false;
  }

  void synchronize_event(Device device, void* event) override {
    const DeviceGuard guard(device);
    DDP_CUDA_CHECK(cudaEventSynchronize(as_event(event)));
  }

  double milliseconds_between(void* earlier, void* later) override {
    float milliseconds = 0;
    DDP_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, as_event(earlier), as_event(later)));
    return milliseconds;
  }

  void* allocate(Device device, std::size_t bytes) override {
    const DeviceGuard guard(device);
    note_used(device);
    void* pointer = nullptr;
    const cudaError_t error = cudaMalloc(&pointer, bytes);
    if (error == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      std::size_t free = 0;
      std::size_t total = 0;
      static_cast<void>(cudaMemGetInfo(&free, &total));
      detail::fail<OutOfMemory>("cudaMalloc of ", bytes, " bytes on ", device, ": the device has ", free, " of ", total,
                                " bytes free");
    }
    DDP_CUDA_CHECK(error);
    return pointer;
  }

  void deallocate(Device device, void* pointer, std::size_t) noexcept override {
    // cudaFree waits for the device by custom rather than by contract, hence the call before it. At process end the
    // runtime may be gone already; the memory then is too.
    const BlockingScope scope("cudaFree", device, std::source_location::current());
    try {
      const DeviceGuard guard(device);
      static_cast<void>(cudaDeviceSynchronize());
      static_cast<void>(cudaFree(pointer));
    } catch (...) {  // NOLINT(bugprone-empty-catch): as said
    }
    static_cast<void>(cudaGetLastError());
  }

  void* allocate_pinned(std::size_t bytes) override {
    // On a device that the process works with, and not on the one that a new thread starts with, where the call would
    // make a context.
    int device = used_.load(std::memory_order_relaxed);
    if (device < 0) DDP_CUDA_CHECK(cudaGetDevice(&device));
    const DeviceGuard guard(Device::cuda(device));
    void* pointer = nullptr;
    const cudaError_t error = cudaHostAlloc(&pointer, bytes, cudaHostAllocPortable);
    if (error == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      detail::fail<OutOfMemory>("cudaHostAlloc of ", bytes, " bytes was refused");
    }
    DDP_CUDA_CHECK(error);
    return pointer;
  }

  void deallocate_pinned(void* pointer) noexcept override {
    const BlockingScope scope("cudaFreeHost", Device::cpu(), std::source_location::current());
    if (cudaFreeHost(pointer) != cudaSuccess) static_cast<void>(cudaGetLastError());
  }

  bool started() const noexcept override { return used_.load(std::memory_order_relaxed) >= 0; }

  PointerInfo describe(const void* pointer) override {
    cudaPointerAttributes attributes{};
    DDP_CUDA_CHECK(cudaPointerGetAttributes(&attributes, pointer));
    switch (attributes.type) {
      case cudaMemoryTypeHost:
        return {PointerKind::pinned, -1};
      case cudaMemoryTypeDevice:
        return {PointerKind::device, attributes.device};
      case cudaMemoryTypeManaged:
        return {PointerKind::managed, attributes.device};
      default:
        return {};
    }
  }

  bool copy(void* destination, Device to, const void* source, Device from, std::size_t bytes, StreamView stream,
            std::source_location where) override {
    if (bytes == 0) return false;
    const DeviceGuard guard(stream.device());
    if (to.is_cuda() && from.is_cuda() && to.index != from.index) {
      DDP_CUDA_CHECK(cudaMemcpyPeerAsync(destination, to.index, source, from.index, bytes, stream.native()));
      report("cudaMemcpyPeerAsync", stream.device());
      return true;
    }
    // The kind is found from the addresses (unified addressing), so pinned host memory needs no extra case.
    const bool on_device = to.is_cuda() && from.is_cuda();
    if (on_device || describe(to.is_cpu() ? destination : source).kind != PointerKind::pageable) {
      DDP_CUDA_CHECK(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, stream.native()));
      report("cudaMemcpyAsync", stream.device());
      return true;
    }
    const BlockingScope scope("copy of pageable memory", stream.device(), where);
    DDP_CUDA_CHECK(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, stream.native()));
    report("cudaMemcpyAsync", stream.device());
    // Documented for device to pageable memory and for small copies in the other direction only: without the
    // wait the caller could read, or free and reuse, host memory that is still in use.
    DDP_CUDA_CHECK(cudaStreamSynchronize(stream.native()));
    return false;
  }

  void fill_zero(void* destination, std::size_t bytes, StreamView stream) override {
    if (bytes == 0) return;
    const DeviceGuard guard(stream.device());
    DDP_CUDA_CHECK(cudaMemsetAsync(destination, 0, bytes, stream.native()));
    report("cudaMemsetAsync", stream.device());
  }

 private:
  static void report(const char* what, Device device) {
    const Observer* listener = observer();
    if (listener != nullptr && listener->launch != nullptr) listener->launch(what, device);
  }

  void note_used(Device device) noexcept {
    if (used_.load(std::memory_order_relaxed) != device.index) used_.store(device.index, std::memory_order_relaxed);
  }

  std::atomic<int> used_{-1};  // the device that memory or a stream was last made on
};

}  // namespace

DeviceRuntime& cuda_runtime() {
  static auto* runtime = new Cuda();  // never destroyed: events and memory of statics, and threads, outlive any order
  return *runtime;
}

}  // namespace ddp::core
