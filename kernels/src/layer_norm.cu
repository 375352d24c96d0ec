#include "norm_rows.cuh"

namespace ddp::kernels {
namespace {

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

}  // namespace ddp::kernels
