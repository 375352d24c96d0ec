#include "ddp_kernels/embedding.h"
#include "rows.cuh"

namespace ddp::kernels {
namespace {

constexpr unsigned kWarps = 16;
constexpr unsigned kSortThreads = 32 * kWarps;
constexpr unsigned kRange = 128;  // rows of a block
constexpr int kAhead = 4;         // loads of a lane under way

/// body(value, place) for a warp's part of the indices in order; -1 behind the end, so that whole warps call it.
template <class Body>
__device__ void for_slice(const std::int64_t* index, std::int64_t count, const Body& body) {
  const std::int64_t slice = (count + kSortThreads - 1) / kSortThreads * 32;
  const std::int64_t begin = threadIdx.x / 32 * slice;
  const std::int64_t end = begin + slice < count ? begin + slice : count;
  for (std::int64_t at = begin + threadIdx.x % 32; at - threadIdx.x % 32 < end; at += 32 * kAhead) {
    std::int64_t values[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) values[u] = at + u * 32 < end ? index[at + u * 32] : -1;
#pragma unroll
    for (int u = 0; u < kAhead; ++u) body(values[u], at + u * 32);
  }
}

__global__ void __launch_bounds__(kSortThreads)
    sort_indices_kernel(std::int64_t* offsets, std::int64_t* positions, const std::int64_t* index, std::int64_t count,
                        std::int64_t rows) {
  // How often a warp met a row; later where it puts its next place.
  __shared__ std::int64_t places[kWarps][kRange];
  __shared__ std::int64_t totals[kRange];
  __shared__ std::int64_t room[32];
  std::int64_t* const mine = places[threadIdx.x / 32];
  const unsigned lane = threadIdx.x % 32;
  const unsigned row = threadIdx.x;  // of the range, for the threads that have one
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kRange; first < rows;
       first += static_cast<std::int64_t>(gridDim.x) * kRange) {
    const std::int64_t here = rows - first < kRange ? rows - first : kRange;
    for (unsigned i = lane; i < kRange; i += 32) mine[i] = 0;
    __syncwarp();

    std::int64_t below = 0;
    for_slice(index, count, [&](std::int64_t value, std::int64_t) {
      below += value >= 0 && value < first ? 1 : 0;
      const bool inside = value >= first && value < first + here;
      if (__ballot_sync(~0U, inside) == 0) return;
      const unsigned which = inside ? static_cast<unsigned>(value - first) : kRange;
      const unsigned peers = __match_any_sync(~0U, which);
      if (inside && lane == static_cast<unsigned>(__ffs(static_cast<int>(peers)) - 1)) mine[which] += __popc(peers);
      __syncwarp();
    });
    below = merged_block<SumOf<std::int64_t>>(below, room);  // and waits for all warps' counts

    // In front of a row's places: those of smaller rows, then those of earlier warps.
    std::int64_t total = 0;
    if (row < kRange) {
      for (unsigned w = 0; w < kWarps; ++w) {
        const std::int64_t met = places[w][row];
        places[w][row] = total;
        total += met;
      }
      totals[row] = total;
    }
    __syncthreads();
    for (unsigned distance = 1; distance < kRange; distance *= 2) {
      const std::int64_t other = row < kRange && row >= distance ? totals[row - distance] : 0;
      __syncthreads();
      if (row < kRange) totals[row] += other;
      __syncthreads();
    }
    if (row < kRange) {
      const std::int64_t start = below + totals[row] - total;
      for (unsigned w = 0; w < kWarps; ++w) places[w][row] += start;
      if (row < here) offsets[first + row] = start;
      if (row + 1 == here && first + here == rows) offsets[rows] = start + total;
    }
    __syncthreads();

    for_slice(index, count, [&](std::int64_t value, std::int64_t place) {
      const bool inside = value >= first && value < first + here;
      if (__ballot_sync(~0U, inside) == 0) return;
      const unsigned which = inside ? static_cast<unsigned>(value - first) : kRange;
      const unsigned peers = __match_any_sync(~0U, which);
      const unsigned earlier = peers & ((1U << lane) - 1);
      if (inside) positions[mine[which] + __popc(earlier)] = place;
      __syncwarp();
      if (inside && earlier == 0) mine[which] += __popc(peers);
      __syncwarp();
    });
    __syncthreads();
  }
}

}  // namespace

cudaError_t sort_indices(std::int64_t* offsets, std::int64_t* positions, const std::int64_t* index, std::int64_t count,
                         std::int64_t rows, cudaStream_t stream) {
  if (count < 0 || rows < 0) return cudaErrorInvalidValue;
  if (rows == 0) return cudaSuccess;
  sort_indices_kernel<<<blocks_of(rows, kRange), kSortThreads, 0, stream>>>(offsets, positions, index, count, rows);
  return cudaGetLastError();
}

}  // namespace ddp::kernels
