#include "ddp_kernels/matmul.h"

#include "strided.cuh"

namespace ddp::kernels {
namespace {

template <class T>
struct Sum {
  using Type = float;
};
template <>
struct Sum<double> {
  using Type = double;
};

template <class Use>
cudaError_t with_floating(Type type, const Use& use) {
  switch (type) {
    case Type::float32:
      return use(static_cast<float*>(nullptr));
    case Type::float64:
      return use(static_cast<double*>(nullptr));
    case Type::float16:
      return use(static_cast<__half*>(nullptr));
    case Type::bfloat16:
      return use(static_cast<__nv_bfloat16*>(nullptr));
    default:
      return cudaErrorInvalidValue;
  }
}

template <class T>
__global__ void matmul_kernel(Matrices out, ConstMatrices a, ConstMatrices b, std::int64_t count, std::int64_t m,
                              std::int64_t n, std::int64_t k, bool accumulate) {
  using S = typename Sum<T>::Type;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const std::int64_t column = i % n;
    const std::int64_t row = i / n % m;
    const std::int64_t matrix = i / n / m;
    const T* left = static_cast<const T*>(a.data) + matrix * a.batch_stride + row * a.row_stride;
    const T* right = static_cast<const T*>(b.data) + matrix * b.batch_stride + column * b.column_stride;
    T* to = static_cast<T*>(out.data) + matrix * out.batch_stride + row * out.row_stride + column * out.column_stride;
    S sum = 0;
    for (std::int64_t j = 0; j < k; ++j) {
      sum += Convert<S, T>::apply(left[j * a.column_stride]) * Convert<S, T>::apply(right[j * b.row_stride]);
    }
    if (accumulate) sum += Convert<S, T>::apply(*to);
    *to = Convert<T, S>::apply(sum);
  }
}

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T values[N];
};

/// `inner` is a multiple of N, and so are the strides. I: what indices are computed in.
template <class T, int N, class I>
__global__ void add_bias_kernel(T* x, const T* bias, bool relu, I count, I channels, I inner, I outer_stride,
                                I channel_stride) {
  using S = typename Sum<T>::Type;
  const I step = static_cast<I>(gridDim.x) * blockDim.x;
  for (I i = static_cast<I>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const I row = i / inner;
    const I outer = row / channels;
    const I channel = row - outer * channels;
    auto* at =
        reinterpret_cast<Pack<T, N>*>(x + outer * outer_stride + channel * channel_stride + (i - row * inner) * N);
    Pack<T, N> pack = *at;
    const S add = bias == nullptr ? S{0} : Convert<S, T>::apply(bias[channel]);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      S value = Convert<S, T>::apply(pack.values[j]) + add;
      if (relu && value < S{0}) value = S{0};
      pack.values[j] = Convert<T, S>::apply(value);
    }
    *at = pack;
  }
}

template <class T, int N>
cudaError_t launch_add_bias(T* x, const T* bias, bool relu, std::int64_t outer, std::int64_t channels,
                            std::int64_t inner, std::int64_t outer_stride, std::int64_t channel_stride,
                            cudaStream_t stream) {
  const std::int64_t count = outer * channels * (inner / N);
  const unsigned blocks = blocks_for(count);
  const std::int64_t reach = (outer - 1) * outer_stride + (channels - 1) * channel_stride + inner;
  // Room for one more step of the grid: its index must not wrap round.
  constexpr std::int64_t kMost = INT64_C(0x7fffffff) - INT64_C(8192) * kThreads;
  if (reach < kMost && count < kMost) {
    add_bias_kernel<T, N, int><<<blocks, kThreads, 0, stream>>>(
        x, bias, relu, static_cast<int>(count), static_cast<int>(channels), static_cast<int>(inner / N),
        static_cast<int>(outer_stride), static_cast<int>(channel_stride));
  } else {
    add_bias_kernel<T, N, std::int64_t>
        <<<blocks, kThreads, 0, stream>>>(x, bias, relu, count, channels, inner / N, outer_stride, channel_stride);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t matmul(const Matrices& out, const ConstMatrices& a, const ConstMatrices& b, std::int64_t batch,
                   std::int64_t m, std::int64_t n, std::int64_t k, bool accumulate, Type type, cudaStream_t stream) {
  if (batch < 0 || m < 0 || n < 0 || k < 0) return cudaErrorInvalidValue;
  const std::int64_t count = batch * m * n;
  if (count == 0) return cudaSuccess;
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    matmul_kernel<T><<<blocks_for(count), kThreads, 0, stream>>>(out, a, b, count, m, n, k, accumulate);
    return cudaGetLastError();
  });
}

cudaError_t add_bias(void* x, const void* bias, bool relu, std::int64_t outer, std::int64_t channels,
                     std::int64_t inner, std::int64_t outer_stride, std::int64_t channel_stride, Type type,
                     cudaStream_t stream) {
  if (outer < 0 || channels < 0 || inner < 0) return cudaErrorInvalidValue;
  if (outer * channels * inner == 0) return cudaSuccess;
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    auto* to = static_cast<T*>(x);
    const auto* from = static_cast<const T*>(bias);
    const bool four = inner % 4 == 0 && outer_stride % 4 == 0 && channel_stride % 4 == 0 &&
                      reinterpret_cast<std::uintptr_t>(x) % (4 * sizeof(T)) == 0;
    return four ? launch_add_bias<T, 4>(to, from, relu, outer, channels, inner, outer_stride, channel_stride, stream)
                : launch_add_bias<T, 1>(to, from, relu, outer, channels, inner, outer_stride, channel_stride, stream);
  });
}

}  // namespace ddp::kernels
