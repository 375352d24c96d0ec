#pragma once

#include "ddp_kernels/random.h"
#include "map.cuh"

/// A thread makes whole Philox blocks and writes the elements that take their numbers.
namespace ddp::kernels {

struct PhiloxWords {
  std::uint32_t w[4];
};

__device__ inline PhiloxWords philox_block(const Philox& state, std::int64_t number) {
  const std::uint64_t counter = state.block + static_cast<std::uint64_t>(number);
  auto c0 = static_cast<std::uint32_t>(counter);
  auto c1 = static_cast<std::uint32_t>(counter >> 32);
  std::uint32_t c2 = 0;
  std::uint32_t c3 = 0;
  auto k0 = static_cast<std::uint32_t>(state.seed);
  auto k1 = static_cast<std::uint32_t>(state.seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint32_t high0 = __umulhi(0xD2511F53U, c0);
    const std::uint32_t low0 = 0xD2511F53U * c0;
    const std::uint32_t high1 = __umulhi(0xCD9E8D57U, c2);
    const std::uint32_t low1 = 0xCD9E8D57U * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {{c0, c1, c2, c3}};
}

/// 64 bits from two neighbouring numbers.
__device__ inline std::uint64_t wide_number(const PhiloxWords& words, int pair) {
  return (static_cast<std::uint64_t>(words.w[2 * pair]) << 32) | words.w[2 * pair + 1];
}

/// Fraction in [0, 1) with as many bits as T holds exactly. `i` counts the elements of the block.
template <class T>
__device__ Compute<T> fraction(const PhiloxWords& words, int i) {
  if constexpr (std::is_same_v<T, double>) {
    return static_cast<double>(wide_number(words, i) >> 11) * 0x1p-53;
  } else {
    constexpr unsigned kBits = std::is_same_v<T, float> ? 24 : std::is_same_v<T, __half> ? 11 : 8;
    return static_cast<float>(words.w[i] >> (32U - kBits)) * (1.0F / static_cast<float>(1U << kBits));
  }
}

/// Writes the elements [first, first + Each) that are inside [0, count); `aligned`: all of x may be written in packs.
template <class T, int Each>
__device__ void write_elements(T* x, std::int64_t first, std::int64_t count, const Pack<T, Each>& values,
                               bool aligned) {
  if (aligned && first + Each <= count) {
    *reinterpret_cast<Pack<T, Each>*>(x + first) = values;
  } else {
#pragma unroll
    for (int i = 0; i < Each; ++i) {
      if (first + i < count) x[first + i] = values.values[i];
    }
  }
}

template <class T, int Each>
bool aligned_for(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % sizeof(Pack<T, Each>) == 0;
}

/// x[i] from Philox block i / Each: `body(words, i % Each)` returns a T.
template <class T, int Each, class Body>
__global__ void __launch_bounds__(kMapThreads)
    random_kernel(T* x, std::int64_t count, Philox state, bool aligned, Body body) {
  const std::int64_t blocks = (count + Each - 1) / Each;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kMapThreads;
  for (std::int64_t b = static_cast<std::int64_t>(blockIdx.x) * kMapThreads + threadIdx.x; b < blocks; b += step) {
    const PhiloxWords words = philox_block(state, b);
    Pack<T, Each> values;
    body(words, values.values);
    write_elements<T, Each>(x, b * Each, count, values, aligned);
  }
}

template <class T, int Each, class Body>
cudaError_t launch_random(void* x, std::int64_t count, Philox state, const Body& body, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  random_kernel<T, Each><<<map_blocks((count + Each - 1) / Each), kMapThreads, 0, stream>>>(
      static_cast<T*>(x), count, state, aligned_for<T, Each>(x), body);
  return cudaGetLastError();
}

}  // namespace ddp::kernels
