// Norms and factors over many arrays.
#include "foreach.cuh"
#include "thread_sums.cuh"

namespace ddp::kernels {
namespace {

/// Calls f(pack of Width elements, address) with packs where the chunk allows it, else element by element.
template <class T, class F>
__device__ void for_packs(const Piece<ArrayChunk>& piece, const F& f) {
  constexpr int kWidth = kPackWidth<T>;
  T* data = static_cast<T*>(piece.chunk.data);
  using P = Pack<T, kWidth>;
  using One = Pack<T, 1>;
  if (!piece.chunk.packed) {
    for (std::int64_t i = piece.begin + threadIdx.x; i < piece.end; i += kForeachThreads) {
      f(*reinterpret_cast<const One*>(data + i), data + i);
    }
    return;
  }
  constexpr int kUnroll = 2;
  constexpr std::int64_t kStride = static_cast<std::int64_t>(kForeachThreads) * kWidth;
  for (std::int64_t at = piece.begin + threadIdx.x * kWidth; at < piece.end; at += kStride * kUnroll) {
    P packs[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t i = at + u * kStride;
      if (i + kWidth <= piece.end) packs[u] = *reinterpret_cast<const P*>(data + i);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t i = at + u * kStride;
      if (i + kWidth <= piece.end) {
        f(packs[u], data + i);
      } else {
        for (std::int64_t rest = i; rest < piece.end; ++rest) {
          f(*reinterpret_cast<const One*>(data + rest), data + rest);
        }
      }
    }
  }
}

template <int N>
__global__ void __launch_bounds__(kForeachThreads)
    squares_kernel(const __grid_constant__ TablePart<ArrayChunk, N> table, double* partials) {
  const Piece<ArrayChunk> piece = find_piece(table);
  double sum[1] = {0};
  with_floating_on_device(piece.chunk.type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    for_packs<T>(piece, [&](const auto& pack, T*) {
#pragma unroll
      for (const T& element : pack.values) {
        const double x = Convert<double, T>::apply(element);
        sum[0] += x * x;
      }
    });
  });
  block_sum<kForeachThreads>(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum[0];
}

__global__ void __launch_bounds__(kForeachThreads)
    norm_kernel(const double* partials, std::int64_t count, double* norm) {
  double sum[1] = {0};
  for (std::int64_t i = threadIdx.x; i < count; i += kForeachThreads) sum[0] += partials[i];
  block_sum<kForeachThreads>(sum);
  if (threadIdx.x == 0) *norm = sqrt(sum[0]);
}

struct Factor {
  double factor;
  const double* norm;  // not null: `factor` is the largest norm
};

template <int N>
__global__ void __launch_bounds__(kForeachThreads)
    scale_kernel(const __grid_constant__ TablePart<ArrayChunk, N> table, Factor by) {
  double factor = by.factor;
  if (by.norm != nullptr) {
    factor /= *by.norm + 1e-6;
    if (factor >= 1) return;
  }
  const Piece<ArrayChunk> piece = find_piece(table);
  with_floating_on_device(piece.chunk.type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    using C = Compute<T>;
    const C multiplier = static_cast<C>(factor);
    for_packs<T>(piece, [&](auto pack, T* address) {
#pragma unroll
      for (T& element : pack.values) element = Convert<T, C>::apply(Convert<C, T>::apply(element) * multiplier);
      *reinterpret_cast<decltype(pack)*>(address) = pack;
    });
  });
}

constexpr int kCapacities[] = {kSmallArray, ArrayTable::kCapacity};
static_assert(sizeof(TablePart<ArrayChunk, ArrayTable::kCapacity>) == sizeof(ArrayTable));
static_assert(sizeof(ArrayTable) + sizeof(Factor) <= 32764 &&
              sizeof(TablePart<ArrayChunk, kSmallArray>) + sizeof(Factor) <= 4096);

template <class Second>
cudaError_t launch(const void* const (&kernels)[2], const ArrayTable& table, Second second, cudaStream_t stream) {
  if (table.count == 0) return cudaSuccess;
  if (table.count < 0 || table.count > ArrayTable::kCapacity || !takes(table.chunks, table.count)) {
    return cudaErrorInvalidValue;
  }
  return launch_table(kernels, kCapacities, &table, table.count, table.blocks, &second, stream);
}

cudaError_t launch_scale(const ArrayTable& table, const Factor& factor, cudaStream_t stream) {
  static const void* const kernels[] = {reinterpret_cast<const void*>(&scale_kernel<kCapacities[0]>),
                                        reinterpret_cast<const void*>(&scale_kernel<kCapacities[1]>)};
  return launch(kernels, table, factor, stream);
}

}  // namespace

cudaError_t squares(const ArrayTable& table, double* partials, cudaStream_t stream) {
  static const void* const kernels[] = {reinterpret_cast<const void*>(&squares_kernel<kCapacities[0]>),
                                        reinterpret_cast<const void*>(&squares_kernel<kCapacities[1]>)};
  return launch(kernels, table, partials, stream);
}

cudaError_t norm_of_partials(const double* partials, std::int64_t count, double* norm, cudaStream_t stream) {
  if (count < 0) return cudaErrorInvalidValue;
  norm_kernel<<<1, kForeachThreads, 0, stream>>>(partials, count, norm);
  return cudaGetLastError();
}

cudaError_t scale(const ArrayTable& table, double factor, cudaStream_t stream) {
  return launch_scale(table, {factor, nullptr}, stream);
}

cudaError_t scale_to_norm(const ArrayTable& table, const double* norm, double max_norm, cudaStream_t stream) {
  return launch_scale(table, {max_norm, norm}, stream);
}

}  // namespace ddp::kernels
