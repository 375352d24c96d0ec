#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "ddp/core/dtype.h"
#include "ddp/core/error.h"

/// From a DType at run time to an element type at compile time:
///   dispatch_floating("relu", x.dtype(), [&]<class T>(TypeTag<T>) { kernel<T>(x, out); });
/// A dtype that the family does not take throws InvalidArgument naming the operation and what it takes.
namespace ddp::raw {

template <class T>
struct TypeTag {
  using type = T;
};

/// The type arithmetic is done in: float for the 16-bit types, else the element type itself.
template <class T>
using ComputeType = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;
/// The type sums are kept in: double for floating point, int64 for whole numbers and bool.
template <class T>
using SumType = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;

/// float32, float64, float16, bfloat16.
template <class F>
void dispatch_floating(std::string_view operation, DType dtype, F&& function) {
  switch (dtype) {
    case DType::float32:
      return function(TypeTag<float>{});
    case DType::float64:
      return function(TypeTag<double>{});
    case DType::float16:
      return function(TypeTag<Half>{});
    case DType::bfloat16:
      return function(TypeTag<BFloat16>{});
    default:
      detail::fail<InvalidArgument>(operation, ": dtype ", dtype, "; allowed: float32, float64, float16, bfloat16");
  }
}

/// int32, int64, uint8.
template <class F>
void dispatch_integral(std::string_view operation, DType dtype, F&& function) {
  switch (dtype) {
    case DType::int32:
      return function(TypeTag<std::int32_t>{});
    case DType::int64:
      return function(TypeTag<std::int64_t>{});
    case DType::uint8:
      return function(TypeTag<std::uint8_t>{});
    default:
      detail::fail<InvalidArgument>(operation, ": dtype ", dtype, "; allowed: int32, int64, uint8");
  }
}

/// Floating point and whole numbers: all but bool.
template <class F>
void dispatch_numeric(std::string_view operation, DType dtype, F&& function) {
  DDP_CHECK(dtype != DType::boolean, InvalidArgument, operation, ": dtype bool; allowed: every other dtype");
  if (is_floating_point(dtype)) {
    dispatch_floating(operation, dtype, function);
  } else {
    dispatch_integral(operation, dtype, function);
  }
}

/// Every dtype.
template <class F>
void dispatch_all(std::string_view operation, DType dtype, F&& function) {
  if (dtype == DType::boolean) {
    function(TypeTag<bool>{});
  } else {
    dispatch_numeric(operation, dtype, function);
  }
}

}  // namespace ddp::raw
