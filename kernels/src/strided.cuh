#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "ddp_kernels/types.h"

/// What the element-by-element kernels share: walking N strided arrays of one shape, types, launching.
namespace ddp::kernels {

/// N arrays of one shape with their dimensions merged where memory allows it: arrays that are contiguous,
/// or strided alike, become one dimension.
template <int N>
struct Walk {
  int rank = 0;
  std::int64_t count = 1;
  std::int64_t sizes[kMaxRank] = {};
  std::int64_t strides[N][kMaxRank] = {};

  /// False for a shape that cannot be.
  bool set(const Sizes& shape, const Strided* const (&arrays)[N]) {
    if (shape.rank < 0 || shape.rank > kMaxRank) return false;
    for (int d = 0; d < shape.rank; ++d) {
      const std::int64_t size = shape.sizes[d];
      if (size < 0) return false;
      count *= size;
      if (size == 1) continue;
      bool merge = rank > 0;
      for (int n = 0; merge && n < N; ++n) merge = strides[n][rank - 1] == size * arrays[n]->strides[d];
      if (merge) {
        sizes[rank - 1] *= size;
      } else {
        sizes[rank++] = size;
      }
      for (int n = 0; n < N; ++n) strides[n][rank - 1] = arrays[n]->strides[d];
    }
    return true;
  }

  __device__ void offsets(std::int64_t i, std::int64_t (&out)[N]) const {
    for (int n = 0; n < N; ++n) out[n] = 0;
    for (int d = rank - 1; d > 0; --d) {
      const std::int64_t index = i % sizes[d];
      i /= sizes[d];
      for (int n = 0; n < N; ++n) out[n] += index * strides[n][d];
    }
    if (rank > 0) {
      for (int n = 0; n < N; ++n) out[n] += i * strides[n][0];
    }
  }
};

/// The device type that a Type stands for. Bool memory holds bytes 0 and 1.
template <class Use>
cudaError_t with_type(Type type, const Use& use) {
  switch (type) {
    case Type::float32:
      return use(static_cast<float*>(nullptr));
    case Type::float64:
      return use(static_cast<double*>(nullptr));
    case Type::float16:
      return use(static_cast<__half*>(nullptr));
    case Type::bfloat16:
      return use(static_cast<__nv_bfloat16*>(nullptr));
    case Type::int32:
      return use(static_cast<std::int32_t*>(nullptr));
    case Type::int64:
      return use(static_cast<std::int64_t*>(nullptr));
    case Type::uint8:
      return use(static_cast<std::uint8_t*>(nullptr));
    case Type::boolean:
      return use(static_cast<bool*>(nullptr));
  }
  return cudaErrorInvalidValue;
}

/// Conversion between any two element types, as on the CPU: the 16-bit floats go through float; from a
/// floating type to a whole one NaN gives 0 and what is out of range the nearest end.
template <class To, class From>
struct Convert {
  static __host__ __device__ To apply(From value) {
    if constexpr (std::is_integral_v<To> && !std::is_same_v<To, bool> && std::is_floating_point_v<From>) {
      constexpr To lowest = std::is_unsigned_v<To> ? To{0} : static_cast<To>(To{1} << (8 * sizeof(To) - 1));
      constexpr To highest = static_cast<To>(~lowest);
      constexpr To half = highest / 2 + 1;
      if (value != value) return 0;
      if (value < static_cast<From>(lowest)) return lowest;
      if (value >= static_cast<From>(half) * 2) return highest;
    }
    return static_cast<To>(value);
  }
};
template <class T>
struct Convert<T, T> {
  static __host__ __device__ T apply(T value) { return value; }
};
template <class To>
struct Convert<To, __half> {
  static __host__ __device__ To apply(__half value) { return Convert<To, float>::apply(__half2float(value)); }
};
template <class To>
struct Convert<To, __nv_bfloat16> {
  static __host__ __device__ To apply(__nv_bfloat16 value) {
    return Convert<To, float>::apply(__bfloat162float(value));
  }
};
template <class From>
struct Convert<__half, From> {
  static __host__ __device__ __half apply(From value) { return __float2half_rn(static_cast<float>(value)); }
};
template <class From>
struct Convert<__nv_bfloat16, From> {
  static __host__ __device__ __nv_bfloat16 apply(From value) { return __float2bfloat16_rn(static_cast<float>(value)); }
};
template <>
struct Convert<__half, __half> {
  static __host__ __device__ __half apply(__half value) { return value; }
};
template <>
struct Convert<__nv_bfloat16, __nv_bfloat16> {
  static __host__ __device__ __nv_bfloat16 apply(__nv_bfloat16 value) { return value; }
};
template <>
struct Convert<__half, __nv_bfloat16> {
  static __host__ __device__ __half apply(__nv_bfloat16 value) { return __float2half_rn(__bfloat162float(value)); }
};
template <>
struct Convert<__nv_bfloat16, __half> {
  static __host__ __device__ __nv_bfloat16 apply(__half value) { return __float2bfloat16_rn(__half2float(value)); }
};

inline constexpr unsigned kThreads = 256;

/// Blocks for a grid-stride loop over `count` elements: enough to fill any device, few enough to be cheap.
inline unsigned blocks_for(std::int64_t count) {
  constexpr std::int64_t kMostBlocks = 8192;
  const std::int64_t blocks = (count + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

/// for (i of this thread) in a grid-stride loop.
template <int N, class Body>
__device__ void for_each(const Walk<N>& walk, const Body& body) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < walk.count; i += step) {
    std::int64_t at[N];
    walk.offsets(i, at);
    body(at);
  }
}

}  // namespace ddp::kernels
