#include "comm/reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "comm/reduce_half.h"
#include "ddp/core/error.h"

namespace ddp::comm {
namespace {

template <ReduceOp Op, class T>
T combine(T a, T b) {
  if constexpr (Op == ReduceOp::sum || Op == ReduceOp::product) {
    if constexpr (std::is_integral_v<T>) {
      // Whole numbers wrap; signed overflow would be undefined.
      using U = std::conditional_t<(sizeof(T) < sizeof(unsigned)), unsigned, std::make_unsigned_t<T>>;
      const U x = static_cast<U>(a);
      const U y = static_cast<U>(b);
      return static_cast<T>(Op == ReduceOp::sum ? x + y : x * y);
    } else {
      return Op == ReduceOp::sum ? a + b : a * b;
    }
  } else if constexpr (std::is_integral_v<T>) {
    return Op == ReduceOp::min ? std::min(a, b) : std::max(a, b);
  } else {
    // A NaN on either side wins, as in a sum.
    const bool take_b = (Op == ReduceOp::min ? b < a : b > a) || b != b;
    return take_b ? b : a;
  }
}

template <ReduceOp Op, class T>
void reduce_plain(void* dst, const void* a, const void* b, std::size_t n) {
  auto* out = static_cast<T*>(dst);
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  for (std::size_t i = 0; i < n; ++i) out[i] = combine<Op>(x[i], y[i]);
}

template <ReduceOp Op>
void reduce_bool(void* dst, const void* a, const void* b, std::size_t n) {
  auto* out = static_cast<std::uint8_t*>(dst);
  const auto* x = static_cast<const std::uint8_t*>(a);
  const auto* y = static_cast<const std::uint8_t*>(b);
  constexpr bool kOr = Op == ReduceOp::sum || Op == ReduceOp::max;
  for (std::size_t i = 0; i < n; ++i) out[i] = (kOr ? (x[i] | y[i]) != 0 : x[i] != 0 && y[i] != 0) ? 1 : 0;
}

// Blocks small enough for the first-level cache; the three loops below are what compilers vectorise.
constexpr std::size_t kBlock = 1024;

template <ReduceOp Op, class T>
void reduce_16bit(void* dst, const void* a, const void* b, std::size_t n) {
  auto* out = static_cast<std::uint16_t*>(dst);
  const auto* x = static_cast<const std::uint16_t*>(a);
  const auto* y = static_cast<const std::uint16_t*>(b);
  float left[kBlock];
  float right[kBlock];
  for (std::size_t at = 0; at < n; at += kBlock) {
    const std::size_t count = std::min(kBlock, n - at);
    to_floats<T>(left, x + at, count);
    to_floats<T>(right, y + at, count);
    for (std::size_t i = 0; i < count; ++i) left[i] = combine<Op>(left[i], right[i]);
    from_floats<T>(out + at, left, count);
  }
}

template <ReduceOp Op>
ReduceFunction select(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return reduce_plain<Op, float>;
    case DType::float64:
      return reduce_plain<Op, double>;
    case DType::float16:
      return reduce_16bit<Op, Half>;
    case DType::bfloat16:
      return reduce_16bit<Op, BFloat16>;
    case DType::int32:
      return reduce_plain<Op, std::int32_t>;
    case DType::int64:
      return reduce_plain<Op, std::int64_t>;
    case DType::uint8:
      return reduce_plain<Op, std::uint8_t>;
    case DType::boolean:
      return reduce_bool<Op>;
  }
  ddp::detail::fail<InvalidArgument>("no reduction for dtype ", static_cast<int>(dtype));
}

}  // namespace

namespace {

template <class T>
void divide_plain(void* x, std::size_t n, int ranks) {
  auto* values = static_cast<T*>(x);
  const auto divisor = static_cast<T>(ranks);
  for (std::size_t i = 0; i < n; ++i) values[i] = values[i] / divisor;
}

template <class T>
void divide_16bit(void* x, std::size_t n, int ranks) {
  auto* values = static_cast<std::uint16_t*>(x);
  const auto divisor = static_cast<float>(ranks);
  float block[kBlock];
  for (std::size_t at = 0; at < n; at += kBlock) {
    const std::size_t count = std::min(kBlock, n - at);
    to_floats<T>(block, values + at, count);
    for (std::size_t i = 0; i < count; ++i) block[i] = block[i] / divisor;
    from_floats<T>(values + at, block, count);
  }
}

}  // namespace

void divide_elements(DType dtype, void* x, std::size_t n, int ranks) {
  switch (dtype) {
    case DType::float32:
      return divide_plain<float>(x, n, ranks);
    case DType::float64:
      return divide_plain<double>(x, n, ranks);
    case DType::float16:
      return divide_16bit<Half>(x, n, ranks);
    case DType::bfloat16:
      return divide_16bit<BFloat16>(x, n, ranks);
    default:
      ddp::detail::fail<InvalidArgument>("no average of ", dtype, " elements");
  }
}

ReduceFunction reduce_function(DType dtype, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:  // divided when the sum is complete
      return select<ReduceOp::sum>(dtype);
    case ReduceOp::min:
      return select<ReduceOp::min>(dtype);
    case ReduceOp::max:
      return select<ReduceOp::max>(dtype);
    case ReduceOp::product:
      return select<ReduceOp::product>(dtype);
  }
  ddp::detail::fail<InvalidArgument>("no reduction ", static_cast<int>(op));
}

}  // namespace ddp::comm
