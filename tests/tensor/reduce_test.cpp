#include "tensor/reduce.h"

#include <gtest/gtest.h>

#include <tuple>

#include "ddp/core/device.h"
#include "reference.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the helpers of these tests

// Sum by index arithmetic in double; also the sum of absolute values, which errors are measured against.
std::pair<std::vector<double>, std::vector<double>> naive_sum(const Tensor& x, const std::vector<bool>& dropped) {
  const std::vector<double> values = x.to_vector<double>();
  std::int64_t kept_count = 1;
  for (std::size_t d = 0; d < dropped.size(); ++d) kept_count *= dropped[d] ? 1 : x.sizes()[d];
  std::vector<double> sums(static_cast<std::size_t>(kept_count), 0.0);
  std::vector<double> sizes = sums;
  for (std::size_t i = 0; i < values.size(); ++i) {
    auto rest = static_cast<std::int64_t>(i);
    std::int64_t at = 0;
    std::int64_t step = 1;
    for (std::size_t d = dropped.size(); d-- > 0;) {
      const std::int64_t index = rest % x.sizes()[d];
      rest /= x.sizes()[d];
      if (dropped[d]) continue;
      at += index * step;
      step *= x.sizes()[d];
    }
    sums[static_cast<std::size_t>(at)] += values[i];
    sizes[static_cast<std::size_t>(at)] += std::fabs(values[i]);
  }
  return {sums, sizes};
}

void expect_sum(const Tensor& got, const Tensor& x, const std::vector<bool>& dropped) {
  const auto [expected, sizes] = naive_sum(x, dropped);
  const std::vector<double> values = got.to_vector<double>();
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    // A tree of eight in the compute type (3 roundings), then double; one rounding of the result.
    const double compute = x.dtype() == DType::float64 ? 16 * 0x1p-53 : 3 * 0x1p-24;
    const double allowed = is_floating_point(x.dtype())
                               ? compute * sizes[i] + epsilon(x.dtype()) * 1.01 * std::fabs(expected[i]) + 1e-300
                               : 0.0;
    ASSERT_NEAR(values[i], expected[i], allowed) << name(x.dtype()) << " " << to_string(x.sizes()) << " element " << i;
  }
}

TEST(Sum, EveryChoiceOfDimensionsDtypeAndLayout) {
  const Dims shapes[] = {{3, 4, 5}, {1, 7, 1}, {2, 33, 17}, {70, 3, 2}, {0, 3, 2}, {2, 0, 3}};
  for (const DType dtype : kEvery) {
    for (const Dims& sizes : shapes) {
      for (const Layout layout : kLayouts) {
        const Tensor x = lay_out(random(sizes, dtype, 11), layout);
        for (int mask = 1; mask < 8; ++mask) {
          Dims dims;
          std::vector<bool> dropped;
          Dims kept;
          for (int d = 0; d < 3; ++d) {
            dropped.push_back(((mask >> d) & 1) != 0);
            if (dropped.back()) dims.push_back(d - 3);
            kept.push_back(dropped.back() ? 1 : sizes[static_cast<std::size_t>(d)]);
          }
          poison();
          expect_sum(raw::sum(x, dims, false), x, dropped);
          const Tensor with_dims = raw::sum(x, dims, true);
          EXPECT_EQ(with_dims.sizes(), kept);
          expect_sum(with_dims, x, dropped);
        }
      }
    }
  }
}

TEST(Sum, ZeroDimensionsEmptyAndWholeNumbers) {
  EXPECT_EQ(raw::sum(full({}, 3), {}, false).item<float>(), 3);
  poison();
  EXPECT_EQ(raw::sum(empty({0}), {}, false).item<float>(), 0);
  EXPECT_EQ(raw::sum(empty({0, 2}), {0}, false).to_vector<float>(), (std::vector<float>{0, 0}));
  const Tensor bytes = full({1000}, 200, {DType::uint8, Device::cpu()});
  EXPECT_EQ(raw::sum(bytes, {}, false).dtype(), DType::int64);
  EXPECT_EQ(raw::sum(bytes, {}, false).item<std::int64_t>(), 200000);
}

TEST(Sum, BroadcastInput) {
  const Tensor x = raw::expand(make({1, 2, 3}, {3, 1}, DType::float32), {4, 3, 5});
  EXPECT_EQ(raw::sum(x, {0, 2}, false).to_vector<float>(), (std::vector<float>{20, 40, 60}));
  EXPECT_EQ(raw::sum(x, {}, false).item<float>(), 120);
}

TEST(Sum, LargeAndTheSameForAnyNumberOfThreads) {
  const int before = num_threads();
  const std::vector<std::tuple<Dims, Dims>> cases = {
      {{1 << 20}, {0}}, {{3000, 300}, {0}}, {{300, 3000}, {1}}, {{7, 64, 900}, {0, 2}}, {{300000, 3}, {0}}};
  for (const auto& [sizes, dims] : cases) {
    const Tensor x = random(sizes, DType::float32, 4);
    std::vector<bool> dropped(sizes.size(), false);
    for (const std::int64_t d : dims) dropped[static_cast<std::size_t>(d)] = true;
    std::vector<float> first;
    for (const int threads : {1, 2, 3}) {
      set_num_threads(threads);
      const Tensor y = raw::sum(x, dims, false);
      if (threads == 1) {
        expect_sum(y, x, dropped);
        first = y.to_vector<float>();
      }
      EXPECT_EQ(y.to_vector<float>(), first) << threads << " threads";
      EXPECT_EQ(raw::sum_of_squares(x).item<double>(), raw::sum_of_squares(x).item<double>());
    }
  }
  set_num_threads(before);
}

TEST(Sum, OutAndAccumulate) {
  for (const Layout layout : kLayouts) {
    const Tensor x = make({1, 2, 3, 4, 5, 6}, {2, 3}, DType::float32);
    const Tensor out = lay_out(full({1, 3}, 100), layout);
    raw::sum(x, {0}, true, out, true);
    EXPECT_EQ(out.to_vector<float>(), (std::vector<float>{105, 107, 109}));
    raw::fill_(out, std::nan(""));
    EXPECT_TRUE(raw::sum(x, {0}, true, out).is_same(out));
    EXPECT_EQ(out.to_vector<float>(), (std::vector<float>{5, 7, 9}));
  }
  // An empty sum adds nothing, and writes zero without accumulate.
  const Tensor out = full({2}, 7);
  raw::sum(empty({0, 2}), {0}, false, out, true);
  EXPECT_EQ(out.to_vector<float>(), (std::vector<float>{7, 7}));
  raw::sum(empty({0, 2}), {0}, false, out);
  EXPECT_EQ(out.to_vector<float>(), (std::vector<float>{0, 0}));
  // The result may lie inside the input.
  const Tensor x = make({1, 2, 3, 4}, {2, 2}, DType::float32);
  raw::sum(x, {0}, false, raw::reshape(raw::slice(x, 0, 0, 1, 1), {2}));
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{4, 6, 3, 4}));
}

TEST(Sum, Errors) {
  EXPECT_EQ(error_of([] { raw::sum(ones({2, 3}), {1, -1}, false); }), "sum: dimensions [1, -1] name 1 twice");
  EXPECT_NE(error_of([] { raw::sum(ones({2, 3}), {2}, false); }), "no error");
  EXPECT_EQ(error_of([] { raw::sum(ones({2, 3}), {1}, false, ones({3})); }), "sum: out has sizes [3], expected [2]");
  EXPECT_EQ(error_of([] { raw::sum(ones({2, 3}), {1}, false, {}, true); }), "sum: accumulate needs an out tensor");
  EXPECT_EQ(error_of([] { raw::sum(ones({2}), {0}, false, ones({}, {DType::float64, Device::cpu()})); }),
            "sum: out has dtype float64, expected float32");
}

TEST(SumTo, UndoesABroadcast) {
  for (const Layout layout : kLayouts) {
    const Tensor x = lay_out(random({4, 3, 5}, DType::float64, 2), layout);
    expect_sum(raw::sum_to(x, {3, 1}), x, {true, false, true});
    expect_sum(raw::sum_to(x, {5}), x, {true, true, false});
    expect_sum(raw::sum_to(x, {}), x, {true, true, true});
    expect_sum(raw::sum_to(x, {1, 3, 5}), x, {true, false, false});
    const Tensor out = full({4, 3, 5}, 1, {DType::float64, Device::cpu()});
    raw::sum_to(x, {4, 3, 5}, out, true);
    std::vector<double> expected = x.to_vector<double>();
    for (double& value : expected) value += 1;
    EXPECT_EQ(out.to_vector<double>(), expected);
  }
  const Tensor x = ones({2, 3});
  EXPECT_TRUE(raw::sum_to(x, {2, 3}).is_same(x));
  EXPECT_EQ(raw::sum_to(ones({0, 3}), {1, 3}).to_vector<float>(), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(error_of([&] { raw::sum_to(x, {2}); }), "sum_to: sizes [2, 3] are no broadcast of [2]");
}

TEST(Max, EveryDimensionDtypeAndLayout) {
  for (const DType dtype : kEvery) {
    for (const Layout layout : kLayouts) {
      const Tensor x = lay_out(random({3, 4, 5}, dtype, 8), layout);
      const std::vector<double> values = x.to_vector<double>();
      for (std::size_t d = 0; d < 3; ++d) {
        poison();
        const raw::MaxResult got = raw::max(x, static_cast<std::int64_t>(d), false);
        EXPECT_EQ(raw::max(x, static_cast<std::int64_t>(d), true).values.dim(), 3);
        const std::size_t size[] = {3, 4, 5};
        std::vector<double> best;
        std::vector<std::int64_t> where;
        for (std::size_t a = 0; a < size[d == 0 ? 1 : 0]; ++a) {
          for (std::size_t b = 0; b < size[d == 2 ? 1 : 2]; ++b) {
            std::int64_t at = -1;
            double largest = 0;
            for (std::size_t k = 0; k < size[d]; ++k) {
              const std::size_t i = d == 0 ? (k * 4 + a) * 5 + b : d == 1 ? (a * 4 + k) * 5 + b : (a * 4 + b) * 5 + k;
              if (at < 0 || values[i] > largest) {
                largest = values[i];
                at = static_cast<std::int64_t>(k);
              }
            }
            best.push_back(largest);
            where.push_back(at);
          }
        }
        EXPECT_EQ(got.values.to_vector<double>(), best);
        EXPECT_EQ(got.indices.to_vector<std::int64_t>(), where);
      }
    }
  }
}

TEST(Max, TiesNanAndErrors) {
  const double nan = std::nan("");
  EXPECT_EQ(raw::max(make({1, 3, 3}, {3}, DType::float32), 0, false).indices.item<std::int64_t>(), 1);
  const raw::MaxResult got = raw::max(make({1, nan, 5, nan}, {4}, DType::float32), 0, false);
  EXPECT_EQ(got.indices.item<std::int64_t>(), 1);
  EXPECT_TRUE(std::isnan(got.values.item<float>()));
  EXPECT_EQ(raw::max(make({nan, 5}, {2}, DType::bfloat16), 0, false).indices.item<std::int64_t>(), 0);
  EXPECT_EQ(raw::max(empty({0, 2}), 1, false).values.sizes(), Dims({0}));
  EXPECT_EQ(error_of([] { raw::max(empty({2, 0}), 1, false); }), "max: dimension 1 of sizes [2, 0] has no elements");
}

TEST(ScatterByIndex, PutsTheGradientWhereTheMaximumWas) {
  for (const DType dtype : kFloating) {
    for (const Layout layout : kLayouts) {
      poison();
      const Tensor grad = lay_out(make({1, 2, 3, 4}, {2, 2}, dtype), layout);
      const Tensor indices = lay_out(make({0, 2, 1, 0}, {2, 2}, DType::int64), layout);
      const Tensor out = raw::scatter_by_index(grad, indices, {2, 3, 2}, 1, false);
      EXPECT_EQ(out.to_vector<double>(), (std::vector<double>{1, 0, 0, 0, 0, 2, 0, 4, 3, 0, 0, 0}));
    }
  }
  const Tensor grad = ones({2, 1});
  EXPECT_EQ(raw::scatter_by_index(grad, make({2, 0}, {2, 1}, DType::int64), {2, 3}, 1, true).to_vector<int>(),
            (std::vector<int>{0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(error_of([&] { raw::scatter_by_index(grad, make({3, 0}, {2, 1}, DType::int64), {2, 3}, 1, true); }),
            "scatter_by_index: index 3; allowed: 0 to 2");
  EXPECT_NE(error_of([&] { raw::scatter_by_index(grad, ones({2, 1}), {2, 3}, 1, true); }), "no error");
}

TEST(SumOfSquares, AndNonFiniteElements) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : kFloating) {
    for (const Layout layout : kLayouts) {
      const Tensor x = lay_out(random({7, 41}, dtype, 6), layout);
      double expected = 0;
      for (const double value : x.to_vector<double>()) expected += value * value;
      // Only the order of the additions in double differs.
      EXPECT_NEAR(raw::sum_of_squares(x).item<double>(), expected, 1e-13 * expected);
      const Tensor y = lay_out(make({1, infinity, -infinity, std::nan(""), 2, 0}, {2, 3}, dtype), layout);
      EXPECT_EQ(raw::count_nonfinite(y).item<std::int64_t>(), 3);
      EXPECT_EQ(raw::count_nonfinite(x).item<std::int64_t>(), 0);
    }
  }
  EXPECT_EQ(raw::sum_of_squares(empty({0})).item<double>(), 0);
  // Does not overflow where the squares do.
  EXPECT_EQ(raw::sum_of_squares(full({4}, 0x1p100)).item<double>(), 0x1p202);
  EXPECT_NE(error_of([] { raw::sum_of_squares(arange(3)); }), "no error");
}

}  // namespace
}  // namespace ddp
