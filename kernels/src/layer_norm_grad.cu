#include "norm_rows.cuh"

namespace ddp::kernels {
namespace {

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

}  // namespace

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
