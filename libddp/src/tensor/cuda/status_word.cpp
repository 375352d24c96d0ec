#include "tensor/status_word.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "ddp_kernels/status_word.h"
#include "tensor/cuda/kernel_call.h"

namespace ddp::raw {

static_assert(kernels::kStatusDigits == kStatusDigits && kernels::kStatusBase == kStatusBase &&
              kernels::kStatusLength == kStatusElements);

void write_status_word(const Tensor& word, std::span<const float> values) {
  DDP_CHECK(values.size() == kStatusElements && word.numel() == kStatusElements && word.is_contiguous(),
            InvalidArgument, "a status word has ", kStatusElements, " elements, not ", values.size(), " into ",
            word.sizes());
  kernels::StatusWord arguments;
  std::copy(values.begin(), values.end(), arguments.values);
  launch_kernel("kernels::write_status_word", word.device(), [&](cudaStream_t stream) {
    return kernels::write_status_word(word.data(), kernel_type(word), arguments, stream);
  });
}

void judge_status_word(const Tensor& word, int ranks, std::uint32_t pass, const Tensor& state, std::uint64_t* host,
                       const std::uint64_t* failed) {
  launch_kernel("kernels::judge_status_word", word.device(), [&](cudaStream_t stream) {
    return kernels::judge_status_word(word.data(), kernel_type(word), ranks, pass,
                                      static_cast<std::uint32_t*>(state.data()), host, failed, stream);
  });
}

std::uint64_t* take_host_word(Device device) {
  constexpr std::size_t kWords = 512;
  static std::mutex mutex;
  static std::uint64_t* next = nullptr;
  static std::size_t left = 0;
  const std::lock_guard lock(mutex);
  if (left == 0) {
    const core::cuda::DeviceGuard guard(device);
    void* page = nullptr;
    DDP_CUDA_CHECK(cudaHostAlloc(&page, kWords * sizeof(std::uint64_t), cudaHostAllocPortable | cudaHostAllocMapped));
    std::memset(page, 0, kWords * sizeof(std::uint64_t));
    // With unified addressing, which every 64-bit Linux has, the device's address is the host's.
    next = static_cast<std::uint64_t*>(page);
    left = kWords;
  }
  --left;
  return next++;
}

}  // namespace ddp::raw
