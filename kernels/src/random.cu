#include "ddp_kernels/random.h"

#include "philox.cuh"

namespace ddp::kernels {
namespace {

__device__ inline float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ inline double fused(double a, double b, double c) { return __fma_rn(a, b, c); }

template <class T>
struct Uniform {
  static constexpr int kEach = std::is_same_v<T, double> ? 2 : 4;
  Compute<T> low;
  Compute<T> width;
  Compute<T> largest;

  __device__ void operator()(const PhiloxWords& words, T (&values)[kEach]) const {
    using C = Compute<T>;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const T value = Convert<T, C>::apply(fused(fraction<T>(words, i), width, low));
      values[i] = Convert<C, T>::apply(value) > largest ? Convert<T, C>::apply(largest) : value;
    }
  }
};

template <class T>
struct Normal {
  double mean;
  double deviation;

  __device__ void operator()(const PhiloxWords& words, T (&values)[4]) const {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const double radius = sqrt(-2 * log((words.w[2 * pair] + 1.0) * 0x1p-32)) * deviation;
      double sine;
      double cosine;
      sincos(words.w[2 * pair + 1] * (0x1p-32 * 6.283185307179586477), &sine, &cosine);
      values[2 * pair] = Convert<T, double>::apply(mean + radius * cosine);
      values[2 * pair + 1] = Convert<T, double>::apply(mean + radius * sine);
    }
  }
};

template <class T>
struct Whole {
  std::uint64_t low;
  std::uint64_t range;

  __device__ void operator()(const PhiloxWords& words, T (&values)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint64_t above = __umul64hi(wide_number(words, i), range);
      values[i] = Convert<T, std::int64_t>::apply(static_cast<std::int64_t>(low + above));
    }
  }
};

}  // namespace

cudaError_t uniform(void* x, Type type, std::int64_t count, double low, double high, double largest, Philox state,
                    cudaStream_t stream) {
  if (count < 0) return cudaErrorInvalidValue;
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    using C = Compute<T>;
    const Uniform<T> body{static_cast<C>(low), static_cast<C>(high - low), static_cast<C>(largest)};
    return launch_random<T, Uniform<T>::kEach>(x, count, state, body, stream);
  });
}

cudaError_t normal(void* x, Type type, std::int64_t count, double mean, double deviation, Philox state,
                   cudaStream_t stream) {
  if (count < 0) return cudaErrorInvalidValue;
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    return launch_random<T, 4>(x, count, state, Normal<T>{mean, deviation}, stream);
  });
}

cudaError_t randint(void* x, Type type, std::int64_t count, std::int64_t low, std::uint64_t range, Philox state,
                    cudaStream_t stream) {
  if (count < 0) return cudaErrorInvalidValue;
  return with_type(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    return launch_random<T, 2>(x, count, state, Whole<T>{static_cast<std::uint64_t>(low), range}, stream);
  });
}

}  // namespace ddp::kernels
