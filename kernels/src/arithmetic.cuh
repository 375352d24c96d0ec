#pragma once

#include <cmath>

#include "map.cuh"

/// Arithmetic on the types that elements are computed in, as on the CPU.
namespace ddp::kernels {

/// Whole numbers wrap around instead of overflowing, which would be undefined.
template <class T>
using Wrapping = std::conditional_t<(sizeof(T) < 4), std::uint32_t, std::make_unsigned_t<T>>;

template <class T>
__device__ T plus(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  } else {
    return a + b;
  }
}
template <class T>
__device__ T minus(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
  } else {
    return a - b;
  }
}
template <class T>
__device__ T times(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  } else {
    return a * b;
  }
}
template <class T>
__device__ T absolute(T x) {
  if constexpr (std::is_unsigned_v<T>) {
    return x;
  } else if constexpr (std::is_integral_v<T>) {
    return x < T{0} ? minus(T{0}, x) : x;
  } else {
    return fabs(x);
  }
}

__device__ inline float exp_of(float x) { return expf(x); }
__device__ inline double exp_of(double x) { return exp(x); }
__device__ inline float log_of(float x) { return logf(x); }
__device__ inline double log_of(double x) { return log(x); }
__device__ inline float tanh_of(float x) { return tanhf(x); }
__device__ inline double tanh_of(double x) { return tanh(x); }
__device__ inline float sqrt_of(float x) { return sqrtf(x); }
__device__ inline double sqrt_of(double x) { return sqrt(x); }
/// Share of the standard normal distribution below x, and its density.
__device__ inline float normal_cdf(float x) { return 0.5F * erfcf(-x * 0.707106781186547524F); }
__device__ inline double normal_cdf(double x) { return 0.5 * erfc(-x * 0.707106781186547524401); }
__device__ inline float normal_pdf(float x) { return expf(-0.5F * x * x) * 0.398942280401432678F; }
__device__ inline double normal_pdf(double x) { return exp(-0.5 * x * x) * 0.398942280401432677940; }

/// results[w] = f(inputs[..][w]) for each element of a pack.
template <class C, class R, int Width, class F>
__device__ void each(const C (&values)[1][Width], R (&results)[Width], const F& f) {
#pragma unroll
  for (int w = 0; w < Width; ++w) results[w] = f(values[0][w]);
}
template <class C, class R, int Width, class F>
__device__ void each(const C (&values)[2][Width], R (&results)[Width], const F& f) {
#pragma unroll
  for (int w = 0; w < Width; ++w) results[w] = f(values[0][w], values[1][w]);
}
template <class C, class R, int Width, class F>
__device__ void each(const C (&values)[3][Width], R (&results)[Width], const F& f) {
#pragma unroll
  for (int w = 0; w < Width; ++w) results[w] = f(values[0][w], values[1][w], values[2][w]);
}

}  // namespace ddp::kernels
