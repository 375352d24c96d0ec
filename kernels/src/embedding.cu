#include "ddp_kernels/embedding.h"

#include "rows.cuh"

namespace ddp::kernels {
namespace {

constexpr unsigned kRowsAtOnce = 8;  // warps of a block, each with a row
constexpr unsigned kGradThreads = 32 * kRowsAtOnce;
constexpr std::int64_t kMany = 64;  // more places than these are shared among the warps

template <class U>
__global__ void __launch_bounds__(kMapThreads)
    embedding_kernel(U* out, const U* table, Table shape, const std::int64_t* index, std::int64_t count,
                     unsigned lanes) {
  const unsigned rows_in_block = kMapThreads / lanes;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * rows_in_block;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * rows_in_block + threadIdx.x / lanes; i < count;
       i += step) {
    const std::int64_t which = index[i];
    const bool inside = which >= 0 && which < shape.rows;
    const U* row = table + (inside ? which * shape.row_stride : 0);
    for (std::int64_t j = threadIdx.x & (lanes - 1); j < shape.width; j += lanes) {
      out[i * shape.width + j] = inside ? row[j * shape.column_stride] : static_cast<U>(~U{0});
    }
  }
}

/// Sum of a column over every `step`-th place. Four sums side by side: their loads are under way together, and
/// rounding grows with a quarter of the places.
template <class T>
__device__ Compute<T> sum_of_places(const T* column, std::int64_t width, const std::int64_t* positions,
                                    std::int64_t begin, std::int64_t end, std::int64_t step) {
  Compute<T> sums[4] = {};
  std::int64_t p = begin;
  for (; p + 3 * step < end; p += 4 * step) {
#pragma unroll
    for (int u = 0; u < 4; ++u) sums[u] += load_of(column[positions[p + u * step] * width]);
  }
  for (; p < end; p += step) sums[0] += load_of(column[positions[p] * width]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

template <class T>
__global__ void __launch_bounds__(kGradThreads)
    embedding_grad_kernel(T* table, Table shape, const T* grad, const std::int64_t* offsets,
                          const std::int64_t* positions, bool accumulate) {
  using C = Compute<T>;
  __shared__ C parts[kRowsAtOnce][32];
  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  const std::int64_t tiles = (shape.width + 31) / 32;
  const std::int64_t units = (shape.rows + kRowsAtOnce - 1) / kRowsAtOnce * tiles;
  for (std::int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const std::int64_t first = unit / tiles * kRowsAtOnce;
    const std::int64_t column = unit % tiles * 32 + lane;
    const bool in_width = column < shape.width;
    const auto write = [&](std::int64_t row, C sum) {
      T& to = table[row * shape.row_stride + column * shape.column_stride];
      to = store_of<T>(accumulate ? load_of(to) + sum : sum);
    };
    const std::int64_t row = first + warp;
    const std::int64_t begin = row < shape.rows ? offsets[row] : 0;
    const std::int64_t end = row < shape.rows ? offsets[row + 1] : 0;
    const bool many = end - begin > kMany;
    if (row < shape.rows && in_width && !many && (end > begin || !accumulate)) {
      write(row, sum_of_places(grad + column, shape.width, positions, begin, end, 1));
    }
    if (__syncthreads_or(many ? 1 : 0) == 0) continue;
    for (unsigned r = 0; r < kRowsAtOnce && first + r < shape.rows; ++r) {
      const std::int64_t from = offsets[first + r];
      const std::int64_t to = offsets[first + r + 1];
      if (to - from <= kMany) continue;
      parts[warp][lane] =
          in_width ? sum_of_places(grad + column, shape.width, positions, from + warp, to, kRowsAtOnce) : C{0};
      __syncthreads();
      if (warp == 0 && in_width) {
        C sum = 0;
        for (unsigned w = 0; w < kRowsAtOnce; ++w) sum += parts[w][lane];
        write(first + r, sum);
      }
      __syncthreads();
    }
  }
}

bool valid(const Table& shape) { return shape.rows >= 0 && shape.width >= 0; }

}  // namespace

cudaError_t embedding(void* out, const void* table, const Table& shape, Type type, const std::int64_t* index,
                      std::int64_t count, cudaStream_t stream) {
  if (!valid(shape) || count < 0) return cudaErrorInvalidValue;
  if (count == 0 || shape.width == 0) return cudaSuccess;
  return with_floating(type, [&](auto* tag) {
    using U = UnsignedOf<sizeof(*tag)>;
    const unsigned lanes = power_of_two_from(shape.width, kMapThreads);
    embedding_kernel<<<blocks_of(count, kMapThreads / lanes), kMapThreads, 0, stream>>>(
        static_cast<U*>(out), static_cast<const U*>(table), shape, index, count, lanes);
    return cudaGetLastError();
  });
}

cudaError_t embedding_grad(void* table, const Table& shape, Type type, const void* grad, const std::int64_t* offsets,
                           const std::int64_t* positions, bool accumulate, cudaStream_t stream) {
  if (!valid(shape)) return cudaErrorInvalidValue;
  if (shape.rows == 0 || shape.width == 0) return cudaSuccess;
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const std::int64_t units = (shape.rows + kRowsAtOnce - 1) / kRowsAtOnce * ((shape.width + 31) / 32);
    embedding_grad_kernel<<<blocks_of(units, 1), kGradThreads, 0, stream>>>(
        static_cast<T*>(table), shape, static_cast<const T*>(grad), offsets, positions, accumulate);
    return cudaGetLastError();
  });
}

}  // namespace ddp::kernels
