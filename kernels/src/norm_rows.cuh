#pragma once

#include "norm.cuh"

/// Rows normalised, a warp or a block for each.
namespace ddp::kernels {

/// The threads of a row: a warp of a block, or the whole block.
template <bool kWarp>
struct RowThreads {
  static constexpr unsigned kRows = kWarp ? kNormWarps : 1;
  static constexpr unsigned kLanes = kWarp ? 32 : kNormThreads;
  static __device__ std::int64_t first_row() {
    return static_cast<std::int64_t>(blockIdx.x) * kRows + (kWarp ? threadIdx.x / 32 : 0);
  }
  static __device__ std::int64_t step() { return static_cast<std::int64_t>(gridDim.x) * kRows; }
  static __device__ unsigned lane() { return kWarp ? threadIdx.x % 32 : threadIdx.x; }
  /// The row's states merged, in all its threads.
  template <class State>
  static __device__ State merged(const State& state, State (&room)[kNormWarps]) {
    if constexpr (kWarp) {
      return merged_down(state).first();
    } else {
      const State result = merged_everywhere(state, room);
      __syncthreads();
      return result;
    }
  }
};

/// Numbers of columns from k on, or the same one for all where there are none.
template <int Width, class C>
__device__ void load_or(const C* numbers, std::int64_t k, C otherwise, C (&values)[Width]) {
  if (numbers != nullptr) {
    load_numbers<Width>(numbers + k, values);
  } else {
#pragma unroll
    for (int w = 0; w < Width; ++w) values[w] = otherwise;
  }
}

/// Calls launch(width, warp, blocks) with constants for the instance that fits the rows.
template <class T, class Launch>
cudaError_t choose(std::int64_t rows, std::int64_t length, bool packs, const Launch& launch) {
  constexpr int kWidth = kNormWidth<T>;
  constexpr std::int64_t kMostPacksOfALane = 8;
  using One = std::integral_constant<int, 1>;
  using Many = std::integral_constant<int, kWidth>;
  packs = packs && length % kWidth == 0;
  const bool warp = length / (packs ? kWidth : 1) <= 32 * kMostPacksOfALane;
  const unsigned blocks = blocks_of(rows, warp ? kNormWarps : 1);
  if (packs) return warp ? launch(Many{}, std::true_type{}, blocks) : launch(Many{}, std::false_type{}, blocks);
  return warp ? launch(One{}, std::true_type{}, blocks) : launch(One{}, std::false_type{}, blocks);
}

}  // namespace ddp::kernels
