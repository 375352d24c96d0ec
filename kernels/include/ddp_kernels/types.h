#pragma once

#include <cstdint>

/// What the kernels agree on. Nothing here knows tensors; the caller passes addresses and strides.
namespace ddp::kernels {

/// Element types, in the order of ddp::DType (checked where both are known).
enum class Type : std::uint8_t { float32, float64, float16, bfloat16, int32, int64, uint8, boolean };

inline constexpr int kMaxRank = 8;

/// Where the elements of an array are: the i-th in row-major order of `sizes` lies sum(index[d] * strides[d])
/// elements behind the base. Stride 0 repeats (broadcast). Passed to kernels by value.
struct Strided {
  std::int64_t strides[kMaxRank] = {};
};
struct Sizes {
  int rank = 0;
  std::int64_t sizes[kMaxRank] = {};
};

/// A strided array without its sizes and type, which it shares with others of the call.
struct Array {
  void* data = nullptr;
  Strided strides;
};
struct ConstArray {
  const void* data = nullptr;
  Strided strides;
};

}  // namespace ddp::kernels
