#include "core/cuda/cublas.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <string_view>

#include "core/cuda/device_guard.h"
#include "core/cuda/handle.h"
#include "core/device_runtime.h"
#include "ddp/core/error.h"

namespace ddp::core::cuda {
namespace {

using CublasHandle = Handle<cublasLtHandle_t, cublasLtDestroy>;

struct Handles {
  std::array<std::atomic<cublasLtHandle_t>, kMaxCpuDevices> made{};
  std::mutex mutex;
};

Handles& handles() {
  static auto* all = new Handles();
  return *all;
}

}  // namespace

cublasLtHandle_t cublas_handle(Device device) {
  check_device(device);
  Handles& all = handles();
  auto& slot = all.made[static_cast<std::size_t>(device.index)];
  if (const cublasLtHandle_t native = slot.load(std::memory_order_acquire)) return native;
  const std::lock_guard lock(all.mutex);
  if (const cublasLtHandle_t native = slot.load(std::memory_order_relaxed)) return native;
  const DeviceGuard guard(device);
  static std::array<CublasHandle, kMaxCpuDevices>* owners = new std::array<CublasHandle, kMaxCpuDevices>();
  CublasHandle& owner = (*owners)[static_cast<std::size_t>(device.index)];
  DDP_CUBLAS_CHECK(cublasLtCreate(owner.put()));
  slot.store(owner.get(), std::memory_order_release);
  return owner.get();
}

void fail_cublas(cublasStatus_t status, const char* expression, const char* file, int line) {
  std::string_view name = file;
  name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
  detail::fail<DeviceError>(expression, ": ", cublasLtGetStatusString(status), " (", cublasLtGetStatusName(status),
                            ", ", static_cast<int>(status), ") at ", name, ":", line);
}

}  // namespace ddp::core::cuda
