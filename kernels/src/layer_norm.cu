// Rows normalised, a warp or a block for each.
#include "norm.cuh"

namespace ddp::kernels {
namespace {

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

template <class T, int Width, bool kWarp>
__global__ void __launch_bounds__(kNormThreads)
    layer_norm_kernel(const T* x, std::int64_t rows, std::int64_t length, const Compute<T>* weight,
                      const Compute<T>* bias, Compute<T> eps, T* y, Compute<T>* mean, Compute<T>* invstd) {
  using C = Compute<T>;
  using Threads = RowThreads<kWarp>;
  constexpr std::int64_t kStep = static_cast<std::int64_t>(Threads::kLanes) * Width;
  __shared__ Moments<C> room[kNormWarps];
  const std::int64_t first = static_cast<std::int64_t>(Threads::lane()) * Width;
  for (std::int64_t row = Threads::first_row(); row < rows; row += Threads::step()) {
    const T* from = x + row * length;
    const C pivot = load_of(from[0]);
    Moments<C> state{};
    for (std::int64_t k = first; k < length; k += kStep) {
      C values[Width];
      load_pack<Width>(from + k, values);
      state.add(values, pivot);
    }
    state = Threads::merged(state, room);
    const C center = pivot + state.mean;
    const C inverse = C{1} / sqrt_of(state.squares / static_cast<C>(length) + eps);
    if (Threads::lane() == 0) {
      mean[row] = center;
      invstd[row] = inverse;
    }
    for (std::int64_t k = first; k < length; k += kStep) {
      C values[Width];
      C scale[Width];
      C add[Width];
      load_pack<Width>(from + k, values);
      load_or(weight, k, C{1}, scale);
      load_or(bias, k, C{0}, add);
#pragma unroll
      for (int w = 0; w < Width; ++w) values[w] = (values[w] - center) * inverse * scale[w] + add[w];
      store_pack<Width>(y + row * length + k, values);
    }
  }
}

template <class T, int Width, bool kWarp>
__global__ void __launch_bounds__(kNormThreads)
    layer_grad_kernel(const T* grad, const T* x, std::int64_t rows, std::int64_t length, const Compute<T>* weight,
                      const Compute<T>* mean, const Compute<T>* invstd, T* x_grad) {
  using C = Compute<T>;
  using Threads = RowThreads<kWarp>;
  constexpr std::int64_t kStep = static_cast<std::int64_t>(Threads::kLanes) * Width;
  __shared__ GradSums<C> room[kNormWarps];
  const std::int64_t first = static_cast<std::int64_t>(Threads::lane()) * Width;
  for (std::int64_t row = Threads::first_row(); row < rows; row += Threads::step()) {
    const C center = mean[row];
    const C inverse = invstd[row];
    // The scaled gradient and the normalised x of a pack.
    const auto load = [&](std::int64_t k, C(&scaled)[Width], C(&normal)[Width]) {
      C scale[Width];
      load_pack<Width>(grad + row * length + k, scaled);
      load_pack<Width>(x + row * length + k, normal);
      load_or(weight, k, C{1}, scale);
#pragma unroll
      for (int w = 0; w < Width; ++w) {
        scaled[w] *= scale[w];
        normal[w] = (normal[w] - center) * inverse;
      }
    };
    C scaled[Width];
    C normal[Width];
    GradSums<C> sums{};
    for (std::int64_t k = first; k < length; k += kStep) {
      load(k, scaled, normal);
#pragma unroll
      for (int w = 0; w < Width; ++w) sums.add(scaled[w], normal[w]);
    }
    sums = Threads::merged(sums, room);
    const C level = sums.sum / static_cast<C>(length);
    const C slope = sums.product / static_cast<C>(length);
    for (std::int64_t k = first; k < length; k += kStep) {
      load(k, scaled, normal);
      C values[Width];
#pragma unroll
      for (int w = 0; w < Width; ++w) values[w] = inverse * (scaled[w] - level - normal[w] * slope);
      store_pack<Width>(x_grad + row * length + k, values);
    }
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

}  // namespace

cudaError_t layer_norm(const void* x, std::int64_t rows, std::int64_t length, const void* weight, const void* bias,
                       double eps, void* y, void* mean, void* invstd, Type type, cudaStream_t stream) {
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    using C = Compute<T>;
    return choose<T>(rows, length, on_16_bytes({x, y, weight, bias}), [&](auto width, auto warp, unsigned blocks) {
      layer_norm_kernel<T, width(), warp()><<<blocks, kNormThreads, 0, stream>>>(
          static_cast<const T*>(x), rows, length, static_cast<const C*>(weight), static_cast<const C*>(bias),
          static_cast<C>(eps), static_cast<T*>(y), static_cast<C*>(mean), static_cast<C*>(invstd));
      return cudaGetLastError();
    });
  });
}

cudaError_t layer_input_grad(const void* grad, const void* x, std::int64_t rows, std::int64_t length,
                             const void* weight, const void* mean, const void* invstd, void* x_grad, Type type,
                             cudaStream_t stream) {
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    using C = Compute<T>;
    return choose<T>(rows, length, on_16_bytes({grad, x, weight, x_grad}), [&](auto width, auto warp, unsigned blocks) {
      layer_grad_kernel<T, width(), warp()><<<blocks, kNormThreads, 0, stream>>>(
          static_cast<const T*>(grad), static_cast<const T*>(x), rows, length, static_cast<const C*>(weight),
          static_cast<const C*>(mean), static_cast<const C*>(invstd), static_cast<T*>(x_grad));
      return cudaGetLastError();
    });
  });
}

}  // namespace ddp::kernels
