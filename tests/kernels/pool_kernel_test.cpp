// Pooling kernels on small whole numbers, exact; aligned memory and not.
#include "ddp_kernels/pool.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "memory.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the helpers of these tests

constexpr DType kFloats[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16};

struct Case {
  k::PoolShape shape;
  k::PoolWindow window;
};
const Case kCases[] = {{{6, 8, 12, 4, 6}, {2, 2, 2, 2, 0, 0}}, {{300, 24, 24, 12, 12}, {2, 2, 2, 2, 0, 0}},
                       {{5, 7, 9, 3, 4}, {2, 2, 2, 2, 0, 0}},  {{4, 11, 10, 6, 5}, {3, 3, 2, 2, 1, 1}},
                       {{2, 5, 13, 5, 4}, {3, 2, 1, 3, 1, 0}}, {{1, 1, 1, 1, 1}, {2, 2, 2, 2, 1, 1}}};

std::size_t inputs(const k::PoolShape& s) { return static_cast<std::size_t>(s.planes * s.h * s.w); }
std::size_t outputs(const k::PoolShape& s) { return static_cast<std::size_t>(s.planes * s.p * s.q); }

/// Calls f(output, input, index in the plane) for all members of all windows, in order.
template <class F>
void for_windows(const Case& c, const F& f) {
  const auto& [s, w] = c;
  for (std::int64_t i = 0; i < s.planes * s.p * s.q; ++i) {
    const std::int64_t plane = i / (s.p * s.q);
    const std::int64_t top = i / s.q % s.p * w.stride_h - w.padding_h;
    const std::int64_t left = i % s.q * w.stride_w - w.padding_w;
    for (std::int64_t y = std::max<std::int64_t>(top, 0); y < std::min(top + w.kernel_h, s.h); ++y) {
      for (std::int64_t x = std::max<std::int64_t>(left, 0); x < std::min(left + w.kernel_w, s.w); ++x) {
        f(static_cast<std::size_t>(i), static_cast<std::size_t>((plane * s.h + y) * s.w + x), y * s.w + x);
      }
    }
  }
}

/// Whole numbers from -4 to 4 with many equals.
std::vector<double> numbers(std::size_t count, std::size_t seed) {
  std::vector<double> result;
  for (std::size_t i = 0; i < count; ++i) result.push_back(static_cast<double>((i * 7919 + seed * 31 + i / 5) % 9) - 4);
  return result;
}

/// `values` from element `from` on, other numbers before and behind.
std::vector<double> shifted(const std::vector<double>& values, std::size_t from) {
  std::vector<double> result(from, 99);
  result.insert(result.end(), values.begin(), values.end());
  result.push_back(99);
  return result;
}

TEST(MaxPool, ForwardAndGradient) {
  for (const DType dtype : kFloats) {
    for (const Case& c : kCases) {
      const auto x = numbers(inputs(c.shape), 1);
      const auto g = numbers(outputs(c.shape), 2);
      std::vector<double> values(g.size(), -100);
      std::vector<double> indices(g.size());
      std::vector<std::size_t> sources(g.size());
      for_windows(c, [&](std::size_t output, std::size_t input, std::int64_t place) {
        if (x[input] <= values[output]) return;
        values[output] = x[input];
        indices[output] = static_cast<double>(place);
        sources[output] = input;
      });
      std::vector<double> x_grad(x.size());
      for (std::size_t i = 0; i < g.size(); ++i) x_grad[sources[i]] += g[i];
      for (const std::size_t from : {0, 1}) {
        Memory input(dtype, x.size() + from + 1);
        Memory grad(dtype, g.size() + from + 1);
        Memory value(dtype, g.size() + from + 1);
        Memory index(DType::int32, g.size() + from + 1);
        Memory out(dtype, x.size() + from + 1);
        input.write_numbers(shifted(x, from));
        grad.write_numbers(shifted(g, from));
        value.write_numbers(std::vector<double>(g.size() + from + 1, 99));
        index.write_numbers(std::vector<double>(g.size() + from + 1, 99));
        out.write_numbers(std::vector<double>(x.size() + from + 1, 99));
        auto* at = static_cast<std::int32_t*>(index.at(from));
        ASSERT_EQ(k::max_pool(input.at(from), value.at(from), at, c.shape, c.window, type_of(dtype), nullptr),
                  cudaSuccess);
        ASSERT_EQ(k::max_pool_grad(grad.at(from), at, out.at(from), c.shape, c.window, type_of(dtype), nullptr),
                  cudaSuccess);
        EXPECT_EQ(value.numbers(), shifted(values, from)) << name(dtype) << ", offset " << from;
        EXPECT_EQ(index.numbers(), shifted(indices, from)) << name(dtype) << ", offset " << from;
        EXPECT_EQ(out.numbers(), shifted(x_grad, from)) << name(dtype) << ", offset " << from;
      }
    }
  }
}

TEST(AveragePool, ForwardAndGradient) {
  for (const DType dtype : kFloats) {
    for (const Case& c : kCases) {
      // Divided by the window with its edges: sums come out exact where that is 2 x 2.
      const auto x = numbers(inputs(c.shape), 3);
      auto g = numbers(outputs(c.shape), 4);
      const double size = static_cast<double>(c.window.kernel_h * c.window.kernel_w);
      for (double& value : g) value *= size;
      std::vector<double> sums(g.size());
      std::vector<double> x_grad(x.size());
      for_windows(c, [&](std::size_t output, std::size_t input, std::int64_t) {
        sums[output] += x[input];
        x_grad[input] += g[output] / size;
      });
      Memory input(dtype, x.size());
      Memory grad(dtype, g.size());
      Memory value(dtype, g.size());
      Memory out(dtype, x.size());
      input.write_numbers(x);
      grad.write_numbers(g);
      ASSERT_EQ(k::average_pool(input.data(), value.data(), c.shape, c.window, true, type_of(dtype), nullptr),
                cudaSuccess);
      ASSERT_EQ(k::average_pool_grad(grad.data(), out.data(), c.shape, c.window, true, type_of(dtype), nullptr),
                cudaSuccess);
      EXPECT_EQ(out.numbers(), x_grad) << name(dtype);
      if (size != 4) continue;
      for (double& sum : sums) sum /= 4;
      EXPECT_EQ(value.numbers(), sums) << name(dtype);
    }
  }
}

TEST(AdaptiveAveragePool, WholePlanes) {
  // 16 x 16: a power of two, so that the mean is exact; large enough for a warp an output.
  const k::PoolShape shape{37, 16, 16, 1, 1};
  for (const DType dtype : {DType::float32, DType::float64}) {
    const auto x = numbers(inputs(shape), 5);
    std::vector<double> means(37);
    for (std::size_t i = 0; i < x.size(); ++i) means[i / 256] += x[i] / 256;
    Memory input(dtype, x.size());
    Memory value(dtype, 37);
    Memory out(dtype, x.size());
    input.write_numbers(x);
    ASSERT_EQ(k::adaptive_average_pool(input.data(), value.data(), shape, type_of(dtype), nullptr), cudaSuccess);
    EXPECT_EQ(value.numbers(), means) << name(dtype);
    ASSERT_EQ(k::adaptive_average_pool_grad(value.data(), out.data(), shape, type_of(dtype), nullptr), cudaSuccess);
    std::vector<double> spread;
    for (std::size_t i = 0; i < x.size(); ++i) spread.push_back(means[i / 256] / 256);
    EXPECT_EQ(out.numbers(), spread) << name(dtype);
  }
}

TEST(Pool, NothingAndNonsense) {
  EXPECT_EQ(k::max_pool(nullptr, nullptr, nullptr, {0, 2, 2, 1, 1}, {2, 2, 2, 2, 0, 0}, k::Type::float32, nullptr),
            cudaSuccess);
  EXPECT_EQ(
      k::average_pool_grad(nullptr, nullptr, {0, 2, 2, 1, 1}, {2, 2, 2, 2, 0, 0}, true, k::Type::float32, nullptr),
      cudaSuccess);
  EXPECT_EQ(k::adaptive_average_pool(nullptr, nullptr, {1, 2, 2, 1, 1}, k::Type::int32, nullptr),
            cudaErrorInvalidValue);
}

}  // namespace
}  // namespace ddp
