#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

/// Element types of tensors.
namespace ddp {

enum class DType : std::uint8_t { float32, float64, float16, bfloat16, int32, int64, uint8, boolean };

/// Bytes of one element.
std::size_t size_of(DType dtype);
/// "float32", "bfloat16", "bool", ...
std::string_view name(DType dtype);
inline std::string to_string(DType dtype) { return std::string(name(dtype)); }
/// Inverse of `name`; also takes "float", "double", "half". Throws InvalidArgument that lists the names.
DType parse_dtype(std::string_view text);

constexpr bool is_floating_point(DType dtype) { return dtype <= DType::bfloat16; }

/// IEEE binary16 storage type. Arithmetic is done in float; conversion from float rounds to nearest even.
struct Half {
  std::uint16_t bits = 0;
  Half() = default;
  explicit Half(float value) : bits(from_float(value)) {}
  explicit operator float() const { return to_float(bits); }

  static std::uint16_t from_float(float value) {
    const auto x = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (x >> 16) & 0x8000U;
    const std::uint32_t magnitude = x & 0x7fffffffU;
    if (magnitude >= 0x7f800000U) {  // infinity, NaN (kept quiet)
      return static_cast<std::uint16_t>(sign | 0x7c00U | (magnitude > 0x7f800000U ? 0x200U : 0U));
    }
    if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // rounds to infinity
    if (magnitude < 0x38800000U) {  // subnormal or zero: let the float adder do the rounding
      const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
      return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
    }
    const std::uint32_t odd = (magnitude >> 13) & 1U;
    return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000U + 0xfffU + odd) >> 13));
  }
  static float to_float(std::uint16_t half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
    const std::uint32_t magnitude = half & 0x7fffU;
    if (magnitude >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13));
    if (magnitude < 0x400U) {  // subnormal: exact in float
      const float value = static_cast<float>(magnitude) * 0x1p-24F;
      return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
    }
    return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000U));
  }
};

/// bfloat16 storage type (upper half of a float). Conversion from float rounds to nearest even.
struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) : bits(from_float(value)) {}
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

  static std::uint16_t from_float(float value) {
    const auto x = std::bit_cast<std::uint32_t>(value);
    if ((x & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((x >> 16) | 0x40U);  // NaN stays NaN
    return static_cast<std::uint16_t>((x + 0x7fffU + ((x >> 16) & 1U)) >> 16);
  }
};

/// DType of a C++ element type: `dtype_of<float> == DType::float32`.
template <class T>
inline constexpr DType dtype_of = [] { static_assert(sizeof(T) == 0, "not an element type"); }();
template <>
inline constexpr DType dtype_of<float> = DType::float32;
template <>
inline constexpr DType dtype_of<double> = DType::float64;
template <>
inline constexpr DType dtype_of<Half> = DType::float16;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bfloat16;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::int32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::int64;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::uint8;
template <>
inline constexpr DType dtype_of<bool> = DType::boolean;

}  // namespace ddp
