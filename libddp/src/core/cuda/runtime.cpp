// Devices, streams, events, memory and copies over the CUDA runtime.
#include <cuda_runtime_api.h>

#include <source_location>
#include <string_view>

#include "core/cuda/check.h"
#include "core/cuda/device_guard.h"
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
    int lowest = 0;
    int highest = 0;
    DDP_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    cudaStream_t stream = nullptr;
    // Non-blocking: work on the legacy default stream must not order itself around ours behind our back.
    DDP_CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                                priority == StreamPriority::high ? highest : lowest));
    return stream;
  }

  void destroy_stream(Device, CUstream_st* stream) noexcept override {
    // Queued work still runs; the driver frees the stream after it. A failure (process teardown) is no news.
    static_cast<void>(cudaStreamDestroy(stream));
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
    cudaEvent_t event = nullptr;
    DDP_CUDA_CHECK(cudaEventCreateWithFlags(&event, timing ? cudaEventDefault : cudaEventDisableTiming));
    return event;
  }

  void destroy_event(Device, void* event) noexcept override { static_cast<void>(cudaEventDestroy(as_event(event))); }

  void record_event(void* event, StreamView stream) override {
    const DeviceGuard guard(stream.device());
    DDP_CUDA_CHECK(cudaEventRecord(as_event(event), stream.native()));
  }

  void wait_event(StreamView stream, void* event) override {
    const DeviceGuard guard(stream.device());
    DDP_CUDA_CHECK(cudaStreamWaitEvent(stream.native(), as_event(event), 0));
  }

  bool event_complete(void* event) override {
    const cudaError_t state = cudaEventQuery(as_event(event));
    if (state == cudaSuccess) return true;
    if (state != cudaErrorNotReady) cuda::fail_cuda(state, "cudaEventQuery", __FILE__, __LINE__);
    static_cast<void>(cudaGetLastError());
    return false;
  }

  void synchronize_event(Device, void* event) override { DDP_CUDA_CHECK(cudaEventSynchronize(as_event(event))); }

  double milliseconds_between(void* earlier, void* later) override {
    float milliseconds = 0;
    DDP_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, as_event(earlier), as_event(later)));
    return milliseconds;
  }

  void* allocate(Device device, std::size_t bytes) override {
    const DeviceGuard guard(device);
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
    // cudaFree waits for the device. At process end the runtime may be gone already; the memory then is too.
    int previous = 0;
    if (cudaGetDevice(&previous) != cudaSuccess) return;
    static_cast<void>(cudaSetDevice(device.index));
    static_cast<void>(cudaFree(pointer));
    static_cast<void>(cudaSetDevice(previous));
  }

  void copy(void* destination, Device to, const void* source, Device from, std::size_t bytes,
            StreamView stream) override {
    if (bytes == 0) return;
    const DeviceGuard guard(stream.device());
    if (to.is_cuda() && from.is_cuda() && to.index != from.index) {
      DDP_CUDA_CHECK(cudaMemcpyPeerAsync(destination, to.index, source, from.index, bytes, stream.native()));
      return;
    }
    // The kind is found from the addresses (unified addressing), so pinned host memory needs no extra case.
    if (to.is_cuda() && from.is_cuda()) {
      DDP_CUDA_CHECK(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, stream.native()));
      return;
    }
    const void* host = to.is_cpu() ? destination : source;
    if (is_pinned(host)) {
      DDP_CUDA_CHECK(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, stream.native()));
      return;
    }
    const BlockingScope scope("copy of pageable memory", stream.device(), std::source_location::current());
    DDP_CUDA_CHECK(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, stream.native()));
    // Documented for device to pageable memory and for small copies in the other direction only: without the
    // wait the caller could read, or free and reuse, host memory that is still in use.
    DDP_CUDA_CHECK(cudaStreamSynchronize(stream.native()));
  }

  void fill_zero(void* destination, std::size_t bytes, StreamView stream) override {
    if (bytes == 0) return;
    const DeviceGuard guard(stream.device());
    DDP_CUDA_CHECK(cudaMemsetAsync(destination, 0, bytes, stream.native()));
  }

 private:
  static bool is_pinned(const void* host) {
    cudaPointerAttributes attributes{};
    DDP_CUDA_CHECK(cudaPointerGetAttributes(&attributes, host));
    return attributes.type != cudaMemoryTypeUnregistered;
  }
};

}  // namespace

DeviceRuntime& cuda_runtime() {
  static Cuda runtime;
  return runtime;
}

}  // namespace ddp::core
