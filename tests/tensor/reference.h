#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ddp/tensor/tensor.h"
#include "tensor/copy.h"

/// Helpers of the tests of raw operations: inputs of every layout, poisoned memory, plain comparison.
namespace ddp::test {

inline const std::vector<DType> kFloating = {DType::float32, DType::float64, DType::float16, DType::bfloat16};
inline const std::vector<DType> kIntegral = {DType::int32, DType::int64, DType::uint8};
inline const std::vector<DType> kEvery = {DType::float32, DType::float64, DType::float16, DType::bfloat16,
                                          DType::int32,   DType::int64,   DType::uint8,   DType::boolean};

/// Unit round-off of a dtype.
inline double epsilon(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return 0x1p-24;
    case DType::float64:
      return 0x1p-53;
    case DType::float16:
      return 0x1p-11;
    case DType::bfloat16:
      return 0x1p-8;
    default:
      return 0;
  }
}

/// A small generator of its own, so that the tests do not rest on the code under test.
class Lcg {
 public:
  explicit Lcg(std::uint64_t seed) : state_(seed * 2654435761U + 12345) {}
  std::uint32_t next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::uint32_t>(state_ >> 33U);
  }
  double uniform(double low, double high) { return low + (high - low) * (next() / 2147483648.0); }

 private:
  std::uint64_t state_;
};

/// Leaves blocks full of NaN bytes in the allocator's cache, so that a result which is not written shows.
inline void poison() {
  std::vector<Tensor> blocks;
  for (std::int64_t bytes = 64; bytes <= (1 << 20); bytes *= 2) {
    for (int i = 0; i < 4; ++i) {
      Tensor block = empty({bytes}, {DType::uint8, Device::cpu()});
      auto* data = block.data_ptr<std::uint8_t>();
      std::fill(data, data + bytes, std::uint8_t{0xff});
      blocks.push_back(block);
    }
  }
}

/// A tensor of these values (row-major) in that dtype.
inline Tensor make(const std::vector<double>& values, const Dims& sizes, DType dtype) {
  Tensor wide = ddp::tensor(values, sizes);
  return dtype == DType::float64 ? wide : raw::to(wide, dtype);
}

enum class Layout : std::uint8_t { plain, transposed, stepped };
inline const std::vector<Layout> kLayouts = {Layout::plain, Layout::transposed, Layout::stepped};

/// The same numbers under another memory layout: last two dimensions transposed in memory, or every second
/// element of each dimension of a larger tensor.
inline Tensor lay_out(const Tensor& x, Layout layout) {
  if (layout == Layout::plain || x.dim() == 0) return x;
  if (layout == Layout::transposed) {
    if (x.dim() < 2) return x;
    return raw::transpose(raw::clone(raw::transpose(x, -1, -2)), -1, -2);
  }
  Dims wide = x.sizes();
  for (std::int64_t& size : wide) size = size * 2 + 1;
  Tensor view = zeros(wide, x.options());
  for (std::int64_t d = 0; d < x.dim(); ++d) view = raw::slice(view, d, 1, 2 * x.size(d) + 1, 2);
  raw::copy_(view, x);
  return view;
}

inline Tensor random(const Dims& sizes, DType dtype, std::uint64_t seed, double low = -2, double high = 2) {
  Lcg numbers(seed);
  std::vector<double> values(static_cast<std::size_t>(sizes.product()));
  for (double& value : values) {
    value = numbers.uniform(low, high);
    if (!is_floating_point(dtype)) value = std::floor(dtype == DType::boolean ? value > 0 : value * 4);
    if (dtype == DType::uint8) value = std::fabs(value);
  }
  return make(values, sizes, dtype);
}

/// Values of `x` seen as broadcast to `sizes`, by index arithmetic alone.
inline std::vector<double> broadcast_values(const Tensor& x, const Dims& sizes) {
  const std::vector<double> values = x.to_vector<double>();
  std::vector<double> wide;
  const std::int64_t count = sizes.product();
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    std::int64_t at = 0;
    std::int64_t step = 1;
    for (std::size_t d = sizes.size(); d-- > 0;) {
      const std::int64_t index = rest % sizes[d];
      rest /= sizes[d];
      const std::size_t behind = sizes.size() - d;
      if (behind > x.sizes().size()) continue;
      const std::int64_t size = x.sizes()[x.sizes().size() - behind];
      at += (size == 1 ? 0 : index) * step;
      step *= size;
    }
    wide.push_back(values[static_cast<std::size_t>(at)]);
  }
  return wide;
}

/// Empty when every element of `x` is within `relative` * |expected| + `absolute`, else what differs.
inline std::string difference(const Tensor& x, const std::vector<double>& expected, double relative,
                              double absolute = 0) {
  const std::vector<double> values = x.to_vector<double>();
  if (values.size() != expected.size()) return concat("count ", values.size(), " against ", expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i]) && std::isnan(expected[i])) continue;
    if (values[i] == expected[i]) continue;
    if (!(std::fabs(values[i] - expected[i]) <= relative * std::fabs(expected[i]) + absolute)) {
      return concat("element ", i, " is ", values[i], ", expected ", expected[i], " (", x.dtype(), " ", x.sizes(), ")");
    }
  }
  return {};
}

/// The text of the InvalidArgument (or other Kind) that `function` throws; "no error" when it throws none.
template <class Kind = InvalidArgument, class F>
std::string error_of(F&& function) {
  try {
    function();
  } catch (const Kind& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace ddp::test
