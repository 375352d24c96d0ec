#pragma once

#include <cuda_runtime.h>

/// Sums over the threads of a block, always in the same order.
namespace ddp::kernels {

template <class S>
__device__ S warp_sum(S value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffU, value, distance);
  return value;
}

/// Replaces each of the N values by its sum over the block, in all threads. All threads must call it; Threads is
/// the block's number of threads, a multiple of 32 up to 1024.
template <int Threads, int N, class S>
__device__ void block_sum(S (&values)[N]) {
  constexpr int kWarps = Threads / 32;
#pragma unroll
  for (int n = 0; n < N; ++n) values[n] = warp_sum(values[n]);
  if constexpr (kWarps > 1) {
    __shared__ S sums[N][kWarps];
    const unsigned warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) {
#pragma unroll
      for (int n = 0; n < N; ++n) sums[n][warp] = values[n];
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < N; ++n) {
      S total = sums[n][0];
#pragma unroll
      for (int w = 1; w < kWarps; ++w) total += sums[n][w];
      values[n] = total;
    }
    __syncthreads();  // the next call writes `sums` again
  }
}

}  // namespace ddp::kernels
