#include "core/cuda/native_pools.h"

#include <mutex>
#include <utility>

#include "core/cuda/check.h"

namespace ddp::core::cuda {

cudaEvent_t EventPool::take(bool timing) {
  {
    const std::lock_guard lock(mutex_);
    std::vector<cudaEvent_t>& list = free_[timing ? 1 : 0];
    if (!list.empty()) {
      cudaEvent_t event = list.back();
      list.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  DDP_CUDA_CHECK(cudaEventCreateWithFlags(&event, timing ? cudaEventDefault : cudaEventDisableTiming));
  return event;
}

void EventPool::give(cudaEvent_t event, bool timing) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    free_[timing ? 1 : 0].push_back(event);
  } catch (...) {
    static_cast<void>(cudaEventDestroy(event));
  }
}

cudaStream_t StreamPool::take(StreamPriority priority) {
  int lowest = 0;
  int highest = 0;
  DDP_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  const int wanted = priority == StreamPriority::high ? highest : lowest;
  std::vector<Free> candidates;
  {
    const std::lock_guard lock(mutex_);
    candidates.swap(free_);
  }
  // Only an idle one: nobody's new work is to wait for somebody else's old work, which may have got stuck.
  cudaStream_t found = nullptr;
  std::size_t kept = 0;
  for (const Free& candidate : candidates) {
    if (found == nullptr && candidate.priority == wanted && cudaStreamQuery(candidate.stream) == cudaSuccess) {
      found = candidate.stream;
    } else {
      candidates[kept++] = candidate;
    }
  }
  candidates.resize(kept);
  static_cast<void>(cudaGetLastError());  // "not ready" is no error
  {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      free_.swap(candidates);
    } else {
      free_.insert(free_.begin(), candidates.begin(), candidates.end());
    }
  }
  if (found != nullptr) return found;
  // Non-blocking: work on the legacy default stream must not order itself around ours behind our back.
  DDP_CUDA_CHECK(cudaStreamCreateWithPriority(&found, cudaStreamNonBlocking, wanted));
  return found;
}

void StreamPool::give(cudaStream_t stream) noexcept {
  Free entry{stream, 0};
  // A failure means a device in trouble or the end of the process: nothing to keep a stream for.
  if (cudaStreamGetPriority(stream, &entry.priority) != cudaSuccess) return;
  try {
    const std::lock_guard lock(mutex_);
    free_.push_back(entry);
  } catch (...) {
    // Lost, and not destroyed: the driver may give its name to a new stream, and blocks cached for it with it.
  }
}

NativePools& native_pools(Device device) {
  static auto* pools = new std::array<NativePools, kMaxCpuDevices>();
  return (*pools)[static_cast<std::size_t>(device.index)];
}

}  // namespace ddp::core::cuda
