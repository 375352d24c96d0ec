#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "ddp_kernels/types.h"

/// What the element-by-element kernels share: walking N strided arrays of one shape, types, launching.
namespace ddp::kernels {

/// Division of a number below 2^31 by one that is known before the launch: a multiplication and a shift.
struct Divisor {
  std::uint32_t divisor = 1;
  std::uint32_t multiplier = 1;
  std::uint32_t shift = 0;

  Divisor() = default;
  explicit Divisor(std::uint32_t d) : divisor(d) {
    while ((std::uint64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<std::uint32_t>(((std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift) - d)) / d + 1);
  }
  __device__ std::uint32_t quotient(std::uint32_t n) const { return (__umulhi(n, multiplier) + n) >> shift; }
};

/// N arrays of one shape with their dimensions merged where memory allows it: arrays that are contiguous,
/// or strided alike, become one dimension.
template <int N>
struct Walk {
  int rank = 0;
  bool narrow = true;  // indices fit 31 bits
  std::int64_t count = 1;
  std::int64_t sizes[kMaxRank] = {};
  std::int64_t strides[N][kMaxRank] = {};
  Divisor divisors[kMaxRank];

  /// False for a shape that cannot be. With `reorder` dimensions are put in the order of array 0's strides
  /// (the smallest is innermost; the next arrays break ties) so that more of them merge; the i-th element of
  /// the walk is then not the i-th in row-major order.
  bool set(const Sizes& shape, const Strided* const (&arrays)[N], bool reorder = false) {
    if (shape.rank < 0 || shape.rank > kMaxRank) return false;
    int order[kMaxRank];
    int dims = 0;
    for (int d = 0; d < shape.rank; ++d) {
      const std::int64_t size = shape.sizes[d];
      if (size < 0) return false;
      count *= size;
      if (size == 1) continue;
      int at = dims++;
      while (reorder && at > 0 && inside(arrays, order[at - 1], d)) {
        order[at] = order[at - 1];
        --at;
      }
      order[at] = d;
    }
    for (int i = 0; i < dims; ++i) {
      const int d = order[i];
      const std::int64_t size = shape.sizes[d];
      bool merge = rank > 0;
      for (int n = 0; merge && n < N; ++n) merge = strides[n][rank - 1] == size * arrays[n]->strides[d];
      if (merge) {
        sizes[rank - 1] *= size;
      } else {
        sizes[rank++] = size;
      }
      for (int n = 0; n < N; ++n) strides[n][rank - 1] = arrays[n]->strides[d];
    }
    finish();
    return true;
  }

  /// To be called when `count` or `sizes` have changed.
  void finish() {
    narrow = count < (std::int64_t{1} << 31);
    if (!narrow || count == 0) return;
    for (int d = 1; d < rank; ++d) divisors[d] = Divisor(static_cast<std::uint32_t>(sizes[d]));
  }

  __device__ void offsets(std::int64_t i, std::int64_t (&out)[N]) const {
    for (int n = 0; n < N; ++n) out[n] = 0;
    if (narrow) {
      auto rest = static_cast<std::uint32_t>(i);
      for (int d = rank - 1; d > 0; --d) {
        const std::uint32_t quotient = divisors[d].quotient(rest);
        const std::int64_t index = rest - quotient * divisors[d].divisor;
        rest = quotient;
        for (int n = 0; n < N; ++n) out[n] += index * strides[n][d];
      }
      i = rest;
    } else {
      for (int d = rank - 1; d > 0; --d) {
        const std::int64_t index = i % sizes[d];
        i /= sizes[d];
        for (int n = 0; n < N; ++n) out[n] += index * strides[n][d];
      }
    }
    if (rank > 0) {
      for (int n = 0; n < N; ++n) out[n] += i * strides[n][0];
    }
  }

 private:
  /// Whether dimension `a` belongs inside `b`.
  static bool inside(const Strided* const (&arrays)[N], int a, int b) {
    for (int n = 0; n < N; ++n) {
      if (arrays[n]->strides[a] != arrays[n]->strides[b]) return arrays[n]->strides[a] < arrays[n]->strides[b];
    }
    return false;
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
