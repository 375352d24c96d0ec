#include "ddp_kernels/status_word.h"
#include "strided.cuh"

namespace ddp::kernels {
namespace {

template <class T>
__global__ void write_kernel(T* word, StatusWord values) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < kStatusLength) word[i] = Convert<T, float>::apply(values.values[i]);
}

template <class T>
__device__ float element(const T* word, int i) {
  return Convert<float, T>::apply(word[i]);
}

/// One warp: a lane for each bit of the digest.
template <class T>
__global__ void judge_kernel(const T* word, float ranks, std::uint32_t pass, std::uint32_t* state, std::uint64_t* host,
                             const std::uint64_t* failed) {
  const int bit = static_cast<int>(threadIdx.x);
  const bool set = element(word, kStatusDigest + 2 * bit) != 0;
  const bool unset = element(word, kStatusDigest + 2 * bit + 1) != 0;
  const bool differs = __any_sync(0xffffffffU, set == unset) != 0;
  if (bit != 0) return;
  std::uint32_t verdict = (element(word, kStatusFault) != 0 ? 1U : 0U) | (differs ? 2U : 0U);
  const float abandoned = element(word, kStatusAbandoned);
  if (abandoned != 0) {
    if (rintf(abandoned * ranks) == 1) {
      std::uint32_t rank = 0;
      for (int digit = kStatusDigits - 1; digit >= 0; --digit) {
        rank = rank * kStatusBase + static_cast<std::uint32_t>(rintf(element(word, kStatusRank + digit) * ranks));
      }
      verdict |= (1U << 2) | (rank << 8);
    } else {
      verdict |= 2U << 2;
    }
  }
  if (failed != nullptr && *static_cast<const volatile std::uint64_t*>(failed) != 0) verdict |= 1U;
  if (state[1] == 0 && verdict != 0) {
    state[1] = verdict;
    state[2] = pass;
  }
  const std::uint32_t held = state[1];
  state[0] = held;
  const std::uint64_t told = held == 0 ? pass : state[2];
  *static_cast<volatile std::uint64_t*>(host) = (told << 32) | held;
  __threadfence_system();
}

template <class Use>
cudaError_t with_floating(Type type, const Use& use) {
  switch (type) {
    case Type::float32:
      return use(static_cast<float*>(nullptr));
    case Type::float64:
      return use(static_cast<double*>(nullptr));
    case Type::float16:
      return use(static_cast<__half*>(nullptr));
    case Type::bfloat16:
      return use(static_cast<__nv_bfloat16*>(nullptr));
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t write_status_word(void* word, Type type, const StatusWord& values, cudaStream_t stream) {
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    write_kernel<T><<<1, 96, 0, stream>>>(static_cast<T*>(word), values);
    return cudaGetLastError();
  });
}

cudaError_t judge_status_word(const void* word, Type type, int ranks, std::uint32_t pass, std::uint32_t* state,
                              std::uint64_t* host, const std::uint64_t* failed, cudaStream_t stream) {
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    judge_kernel<T>
        <<<1, 32, 0, stream>>>(static_cast<const T*>(word), static_cast<float>(ranks), pass, state, host, failed);
    return cudaGetLastError();
  });
}

}  // namespace ddp::kernels
