#include "ddp_kernels/conv.h"

#include "strided.cuh"

namespace ddp::kernels {
namespace {

/// T: any type of the element's size; nothing is computed.
template <class T>
__global__ void image_to_columns_kernel(T* columns, std::int64_t tap_stride, std::int64_t image_stride, const T* x,
                                        ConvGeometry g, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t area = g.p * g.q;
  const std::int64_t taps = g.c * g.r * g.s;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const std::int64_t place = i % area;
    const std::int64_t tap = i / area % taps;
    const std::int64_t image = i / area / taps;
    const std::int64_t column = tap % g.s;
    const std::int64_t row = tap / g.s % g.r;
    const std::int64_t channel = tap / g.s / g.r;
    const std::int64_t h = place / g.q * g.stride_h - g.padding_h + row * g.dilation_h;
    const std::int64_t w = place % g.q * g.stride_w - g.padding_w + column * g.dilation_w;
    const bool inside = h >= 0 && h < g.h && w >= 0 && w < g.w;
    columns[tap * tap_stride + image * image_stride + place] =
        inside ? x[((image * g.c + channel) * g.h + h) * g.w + w] : T{0};
  }
}

template <class T, class S>
__global__ void columns_to_image_kernel(T* x, const T* columns, std::int64_t tap_stride, std::int64_t image_stride,
                                        ConvGeometry g, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const std::int64_t w = i % g.w;
    const std::int64_t h = i / g.w % g.h;
    const std::int64_t channel = i / g.w / g.h % g.c;
    const std::int64_t image = i / g.w / g.h / g.c;
    S sum = 0;
    for (std::int64_t row = 0; row < g.r; ++row) {
      const std::int64_t down = h + g.padding_h - row * g.dilation_h;
      if (down < 0 || down % g.stride_h != 0 || down / g.stride_h >= g.p) continue;
      for (std::int64_t column = 0; column < g.s; ++column) {
        const std::int64_t right = w + g.padding_w - column * g.dilation_w;
        if (right < 0 || right % g.stride_w != 0 || right / g.stride_w >= g.q) continue;
        const std::int64_t tap = (channel * g.r + row) * g.s + column;
        const std::int64_t place = down / g.stride_h * g.q + right / g.stride_w;
        sum += Convert<S, T>::apply(columns[tap * tap_stride + image * image_stride + place]);
      }
    }
    x[i] = Convert<T, S>::apply(sum);
  }
}

template <class T>
cudaError_t launch_to_columns(void* columns, std::int64_t tap_stride, std::int64_t image_stride, const void* x,
                              const ConvGeometry& g, std::int64_t count, cudaStream_t stream) {
  image_to_columns_kernel<T><<<blocks_for(count), kThreads, 0, stream>>>(
      static_cast<T*>(columns), tap_stride, image_stride, static_cast<const T*>(x), g, count);
  return cudaGetLastError();
}

template <class T, class S>
cudaError_t launch_to_image(void* x, const void* columns, std::int64_t tap_stride, std::int64_t image_stride,
                            const ConvGeometry& g, std::int64_t count, cudaStream_t stream) {
  columns_to_image_kernel<T, S><<<blocks_for(count), kThreads, 0, stream>>>(
      static_cast<T*>(x), static_cast<const T*>(columns), tap_stride, image_stride, g, count);
  return cudaGetLastError();
}

}  // namespace

cudaError_t image_to_columns(void* columns, std::int64_t tap_stride, std::int64_t image_stride, const void* x,
                             const ConvGeometry& g, Type type, cudaStream_t stream) {
  const std::int64_t count = g.n * g.c * g.r * g.s * g.p * g.q;
  if (count < 0) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  switch (type) {
    case Type::float16:
    case Type::bfloat16:
      return launch_to_columns<std::uint16_t>(columns, tap_stride, image_stride, x, g, count, stream);
    case Type::float32:
      return launch_to_columns<std::uint32_t>(columns, tap_stride, image_stride, x, g, count, stream);
    case Type::float64:
      return launch_to_columns<std::uint64_t>(columns, tap_stride, image_stride, x, g, count, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t columns_to_image(void* x, const void* columns, std::int64_t tap_stride, std::int64_t image_stride,
                             const ConvGeometry& g, Type type, cudaStream_t stream) {
  const std::int64_t count = g.n * g.c * g.h * g.w;
  if (count < 0) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  switch (type) {
    case Type::float16:
      return launch_to_image<__half, float>(x, columns, tap_stride, image_stride, g, count, stream);
    case Type::bfloat16:
      return launch_to_image<__nv_bfloat16, float>(x, columns, tap_stride, image_stride, g, count, stream);
    case Type::float32:
      return launch_to_image<float, float>(x, columns, tap_stride, image_stride, g, count, stream);
    case Type::float64:
      return launch_to_image<double, double>(x, columns, tap_stride, image_stride, g, count, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace ddp::kernels
