#include "core/cuda/cudnn.h"

#include <array>
#include <cstddef>
#include <mutex>
#include <string_view>
#include <vector>

#include "core/cuda/device_guard.h"
#include "core/device_runtime.h"
#include "ddp/core/error.h"

namespace ddp::core::cuda {
namespace {

using Context = std::unique_ptr<CudnnContext>;

/// Contexts whose thread has ended, by device.
struct Spare {
  std::mutex mutex;
  std::array<std::vector<Context>, kMaxCpuDevices> contexts;
};

Spare& spare() {
  static auto* all = new Spare();
  return *all;
}

class ThreadContexts {
 public:
  ThreadContexts() = default;
  ThreadContexts(const ThreadContexts&) = delete;
  ThreadContexts& operator=(const ThreadContexts&) = delete;
  ~ThreadContexts() {
    const std::lock_guard lock(spare().mutex);
    for (std::size_t i = 0; i < own_.size(); ++i) {
      if (!own_[i]) continue;
      try {
        spare().contexts[i].push_back(std::move(own_[i]));
      } catch (...) {  // no room to remember it: left to itself, as it cannot be destroyed safely here
        [[maybe_unused]] const auto* left_alone = own_[i].release();
      }
    }
  }

  CudnnContext& get(Device device) {
    const auto index = static_cast<std::size_t>(device.index);
    if (!own_[index]) own_[index] = take(device, index);
    return *own_[index];
  }

 private:
  static Context take(Device device, std::size_t index) {
    {
      const std::lock_guard lock(spare().mutex);
      auto& contexts = spare().contexts[index];
      if (!contexts.empty()) {
        Context context = std::move(contexts.back());
        contexts.pop_back();
        return context;
      }
    }
    const DeviceGuard guard(device);
    auto context = std::make_unique<CudnnContext>();
    DDP_CUDNN_CHECK(cudnnCreate(&context->handle));
    return context;
  }

  std::array<Context, kMaxCpuDevices> own_;
};

}  // namespace

CudnnContext& cudnn_context(StreamView stream) {
  check_device(stream.device());
  static thread_local ThreadContexts contexts;
  CudnnContext& context = contexts.get(stream.device());
  if (!context.has_stream || context.stream != stream.native()) {
    DDP_CUDNN_CHECK(cudnnSetStream(context.handle, stream.native()));
    context.stream = stream.native();
    context.has_stream = true;
  }
  return context;
}

void fail_cudnn(cudnnStatus_t status, const char* expression, const char* file, int line) {
  std::string_view name = file;
  name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
  char more[512] = {};
  cudnnGetLastErrorString(more, sizeof(more));
  detail::fail<DeviceError>(expression, ": ", cudnnGetErrorString(status), " (", static_cast<int>(status), ") at ",
                            name, ":", line, more[0] == '\0' ? "" : ": ", static_cast<const char*>(more));
}

}  // namespace ddp::core::cuda
