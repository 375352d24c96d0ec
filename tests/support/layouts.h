#pragma once

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "ddp/tensor/tensor.h"
#include "tensor/tensor_impl.h"

/// Tensors with the same numbers and different strides.
namespace ddp::test {

enum class Layout : std::uint8_t {
  row_major,
  transposed,  // column-major: dense, but not row-major
  sliced,      // every second element of a buffer whose others are NaN
};

inline const char* name_of(Layout layout) {
  return layout == Layout::row_major ? "row-major" : layout == Layout::transposed ? "transposed" : "sliced";
}

/// Calls `visit(row-major index, offset in elements)` for each element.
template <class Visit>
void for_each_element(const Dims& sizes, const Dims& strides, const Visit& visit) {
  const std::int64_t n = sizes.product();
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t rest = i;
    std::int64_t offset = 0;
    for (std::size_t d = sizes.size(); d-- > 0;) {
      offset += rest % sizes[d] * strides[d];
      rest /= sizes[d];
    }
    visit(i, offset);
  }
}

/// Uninitialised (NaN around and inside) memory of these sizes in this layout.
inline Tensor make_layout(const Dims& sizes, Layout layout) {
  Dims strides = contiguous_strides(sizes);
  std::int64_t offset = 0;
  std::int64_t room = sizes.product();
  if (layout == Layout::transposed) {
    std::int64_t stride = 1;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      strides[d] = stride;
      stride *= sizes[d] > 1 ? sizes[d] : 1;
    }
  } else if (layout == Layout::sliced) {
    for (std::int64_t& stride : strides) stride *= 2;
    offset = 3;
    room = room * 2 + 4;
  }
  const Tensor base = empty({room}, {DType::float64, Device::cpu()});
  auto* data = static_cast<double*>(base.data());
  for (std::int64_t i = 0; i < room; ++i) data[i] = std::numeric_limits<double>::quiet_NaN();
  return make_view(base, sizes, strides, offset);
}

inline void write(const Tensor& tensor, const std::vector<double>& values) {
  auto* data = static_cast<double*>(tensor.data());
  for_each_element(tensor.sizes(), tensor.strides(),
                   [&](std::int64_t i, std::int64_t offset) { data[offset] = values[static_cast<std::size_t>(i)]; });
}

inline Tensor make_layout(const Dims& sizes, Layout layout, const std::vector<double>& values) {
  Tensor result = make_layout(sizes, layout);
  write(result, values);
  return result;
}

/// Row-major numbers of a float64 tensor.
inline std::vector<double> read(const Tensor& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.numel()));
  const auto* data = static_cast<const double*>(tensor.data());
  for_each_element(tensor.sizes(), tensor.strides(),
                   [&](std::int64_t i, std::int64_t offset) { values[static_cast<std::size_t>(i)] = data[offset]; });
  return values;
}

inline std::vector<double> random_values(std::int64_t n, double low, double high, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<double> values(static_cast<std::size_t>(n));
  for (double& value : values) value = uniform(engine);
  return values;
}

}  // namespace ddp::test
