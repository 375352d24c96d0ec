#include "tensor/gemm.h"

#include <gtest/gtest.h>

#include "dense_reference.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the helpers of these tests

// a [.., m, k] times b [.., k, n] with leading sizes `batch`.
std::vector<double> product(const Tensor& a, const Tensor& b, const Dims& batch) {
  const std::int64_t m = a.size(-2);
  const std::int64_t k = a.size(-1);
  const std::int64_t n = b.size(-1);
  Dims a_sizes = batch;
  a_sizes.push_back(m);
  a_sizes.push_back(k);
  Dims b_sizes = batch;
  b_sizes.push_back(k);
  b_sizes.push_back(n);
  const auto av = broadcast_values(a, a_sizes);
  const auto bv = broadcast_values(b, b_sizes);
  std::vector<double> y;
  for (std::int64_t i = 0; i < batch.product() * m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < k; ++l) {
        sum += av[static_cast<std::size_t>(i * k + l)] * bv[static_cast<std::size_t>((i / m * k + l) * n + j)];
      }
      y.push_back(sum);
    }
  }
  return y;
}

struct Size {
  std::int64_t m, n, k;
};
// Around the sizes of register tiles (14 x 32 and smaller), of panels and of the blocks of k.
const std::vector<Size> kSizes = {{1, 1, 1},   {3, 5, 7},    {14, 32, 16},  {15, 33, 17},  {1, 40, 300}, {65, 10, 100},
                                  {10, 65, 3}, {2, 3, 1030}, {7, 150, 520}, {30, 170, 33}, {150, 9, 70}};

TEST(Gemm, MatmulOfEverySizeLayoutAndDtype) {
  std::uint64_t seed = 1;
  for (const DType dtype : kDense) {
    for (const auto& [m, n, k] : kSizes) {
      const Tensor a = whole_numbers({m, k}, dtype, ++seed);
      const Tensor b = whole_numbers({k, n}, dtype, ++seed);
      const auto expected = rounded(product(a, b, {}), dtype);
      for (const Layout la : kLayouts) {
        for (const Layout lb : kLayouts) {
          poison();
          EXPECT_EQ(raw::matmul(lay_out(a, la), lay_out(b, lb)).to_vector<double>(), expected)
              << name(dtype) << " " << m << " " << n << " " << k;
        }
      }
    }
  }
}

TEST(Gemm, IntoEveryLayoutWithAndWithoutAccumulate) {
  std::uint64_t seed = 100;
  for (const DType dtype : kDense) {
    for (const auto& [m, n, k] : kSizes) {
      const Tensor a = whole_numbers({m, k}, dtype, ++seed);
      const Tensor b = whole_numbers({k, n}, dtype, ++seed);
      const Tensor start = whole_numbers({m, n}, dtype, ++seed);
      auto sum = product(a, b, {});
      const auto expected = rounded(sum, dtype);
      const auto before = start.to_vector<double>();
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += before[i];
      for (const Layout layout : kLayouts) {
        const Tensor poisoned = lay_out(full({m, n}, std::nan(""), {dtype, Device::cpu()}), layout);
        const Tensor same = raw::matmul(a, b, poisoned);
        EXPECT_TRUE(same.is_same(poisoned));
        EXPECT_EQ(poisoned.to_vector<double>(), expected) << name(dtype) << " " << m << " " << n << " " << k;
        const Tensor added = lay_out(raw::clone(start), layout);
        raw::matmul(lay_out(a, layout), b, added, true);
        EXPECT_EQ(added.to_vector<double>(), rounded(sum, dtype));
      }
    }
  }
}

TEST(Gemm, OutMayLieInsideALargerBufferAndTouchesNothingElse) {
  const Tensor bucket = full({1000}, 7);
  const Tensor a = whole_numbers({16, 20}, DType::float32, 1);
  const Tensor b = whole_numbers({20, 33}, DType::float32, 2);
  const Tensor view = raw::view(raw::slice(bucket, 0, 101, 101 + 16 * 33, 1), {16, 33});
  raw::matmul(a, b, view);
  const auto all = bucket.to_vector<double>();
  const auto expected = product(a, b, {});
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i], i >= 101 && i < 101 + expected.size() ? expected[i - 101] : 7) << i;
  }
}

TEST(Gemm, BatchesBroadcast) {
  const std::vector<std::pair<Dims, Dims>> cases = {{{3, 4, 5}, {3, 5, 2}}, {{3, 4, 5}, {5, 2}},
                                                    {{4, 5}, {3, 5, 2}},    {{2, 1, 4, 5}, {3, 5, 2}},
                                                    {{1, 4, 5}, {6, 5, 2}}, {{2, 3, 17, 33}, {1, 3, 33, 40}},
                                                    {{0, 4, 5}, {5, 2}},    {{3, 0, 5}, {3, 5, 2}},
                                                    {{3, 4, 0}, {3, 0, 2}}, {{3, 4, 5}, {3, 5, 0}}};
  std::uint64_t seed = 1;
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
    for (const auto& [as, bs] : cases) {
      const Tensor a = whole_numbers(as, dtype, ++seed);
      const Tensor b = whole_numbers(bs, dtype, ++seed);
      const Dims batch =
          broadcast_sizes(Dims(std::span(as.begin(), as.size() - 2)), Dims(std::span(bs.begin(), bs.size() - 2)));
      const auto expected = rounded(product(a, b, batch), dtype);
      for (const Layout layout : kLayouts) {
        poison();
        const Tensor y = raw::matmul(lay_out(a, layout), lay_out(b, layout));
        Dims sizes = batch;
        sizes.push_back(as[as.size() - 2]);
        sizes.push_back(bs.back());
        EXPECT_EQ(y.sizes(), sizes);
        EXPECT_EQ(y.to_vector<double>(), expected) << to_string(as) << to_string(bs);
      }
    }
  }
}

TEST(Gemm, OneDimensionalArguments) {
  const Tensor v = make({1, 2, 3}, {3}, DType::float32);
  const Tensor w = make({4, 5, 6}, {3}, DType::float32);
  const Tensor m = make({1, 0, 2, 0, 1, 3}, {3, 2}, DType::float32);  // rows (1 0) (2 0) (1 3)
  const Tensor dot = raw::matmul(v, w);
  EXPECT_EQ(dot.sizes(), Dims{});
  EXPECT_EQ(dot.item<float>(), 32);
  EXPECT_EQ(raw::matmul(v, m).sizes(), (Dims{2}));
  EXPECT_EQ(raw::matmul(v, m).to_vector<float>(), (std::vector<float>{8, 9}));
  EXPECT_EQ(raw::matmul(raw::transpose(m, 0, 1), v).to_vector<float>(), (std::vector<float>{8, 9}));
  const Tensor batch = ones({4, 2, 3});
  EXPECT_EQ(raw::matmul(batch, v).to_vector<float>(), std::vector<float>(8, 6));
  EXPECT_EQ(raw::matmul(v, ones({4, 3, 2})).sizes(), (Dims{4, 2}));
  EXPECT_EQ(raw::matmul(zeros({0}), zeros({0})).item<float>(), 0);
}

TEST(Gemm, InnerSizeZeroGivesZerosOrLeavesTheSum) {
  poison();
  EXPECT_EQ(raw::matmul(zeros({40, 0}), zeros({0, 50})).to_vector<float>(), std::vector<float>(2000, 0));
  const Tensor out = full({2, 2}, 3);
  raw::matmul(zeros({2, 0}), zeros({0, 2}), out, true);
  EXPECT_EQ(out.to_vector<float>(), std::vector<float>(4, 3));
}

TEST(Gemm, LinearWithBiasAndRelu) {
  std::uint64_t seed = 1;
  for (const DType dtype : kDense) {
    for (const Dims& lead : {Dims{}, Dims{0}, Dims{1}, Dims{64}, Dims{3, 5}}) {
      for (const auto& [m, out, in] : kSizes) {
        static_cast<void>(m);
        Dims xs = lead;
        xs.push_back(in);
        const Tensor x = whole_numbers(xs, dtype, ++seed);
        const Tensor weight = whole_numbers({out, in}, dtype, ++seed);
        const Tensor bias = whole_numbers({out}, dtype, ++seed);
        const auto plain = product(raw::reshape(x, {lead.product(), in}), raw::transpose(weight, 0, 1), {});
        auto biased = plain;
        const auto b = bias.to_vector<double>();
        for (std::size_t i = 0; i < biased.size(); ++i) biased[i] += b[i % b.size()];
        auto positive = biased;
        for (double& value : positive) value = std::max(value, 0.0);
        for (const Layout layout : kLayouts) {
          poison();
          const Tensor xl = lay_out(x, layout);
          const Tensor wl = lay_out(weight, layout);
          Dims ys = lead;
          ys.push_back(out);
          EXPECT_EQ(raw::linear(xl, wl, {}).sizes(), ys);
          EXPECT_EQ(raw::linear(xl, wl, {}).to_vector<double>(), rounded(plain, dtype));
          EXPECT_EQ(raw::linear(xl, wl, lay_out(bias, layout)).to_vector<double>(), rounded(biased, dtype));
          EXPECT_EQ(raw::linear(xl, wl, bias, true).to_vector<double>(), rounded(positive, dtype));
        }
      }
    }
  }
}

TEST(Gemm, LinearWithoutInputsIsTheBias) {
  poison();
  const Tensor y = raw::linear(zeros({2, 0}), zeros({3, 0}), make({1, -2, 3}, {3}, DType::float32), true);
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{1, 0, 3, 1, 0, 3}));
}

TEST(Gemm, LinearWeightGrad) {
  for (const DType dtype : kDense) {
    const Tensor grad = whole_numbers({4, 9, 40}, dtype, 1);
    const Tensor x = whole_numbers({4, 9, 50}, dtype, 2);
    const auto expected = product(raw::transpose(raw::reshape(grad, {36, 40}), 0, 1), raw::reshape(x, {36, 50}), {});
    auto twice = expected;
    for (double& value : twice) value += 5;
    const Tensor out = full({40, 50}, 5, {dtype, Device::cpu()});
    EXPECT_EQ(raw::linear_weight_grad(grad, x).to_vector<double>(), rounded(expected, dtype));
    raw::linear_weight_grad(grad, x, out, true);
    EXPECT_EQ(out.to_vector<double>(), rounded(twice, dtype));
  }
  const Tensor none = full({3, 2}, 5);
  raw::linear_weight_grad(zeros({0, 3}), zeros({0, 2}), none);
  EXPECT_EQ(none.to_vector<float>(), std::vector<float>(6, 0));
}

TEST(Gemm, NumbersOfAnySizeWithinTheBoundOfTheSum) {
  for (const DType dtype : {DType::float32, DType::float64}) {
    const Tensor a = random({70, 1100}, dtype, 1);
    const Tensor b = random({1100, 200}, dtype, 2);
    // |error| <= k * eps * sum |a||b|, at most 4 per product here; a tenth of it, as the errors are random.
    EXPECT_EQ(difference(raw::matmul(a, b), product(a, b, {}), 0, 0.1 * 1100 * epsilon(dtype) * 1100 * 4), "");
  }
}

TEST(Gemm, SameBitsForAnyNumberOfThreads) {
  for (const auto& [m, n, k] : std::vector<Size>{{64, 1024, 784}, {300, 70, 600}, {70, 300, 65}, {200, 200, 1100}}) {
    const Tensor a = random({m, k}, DType::float32, 1);
    const Tensor b = random({n, k}, DType::float32, 2);
    const Tensor bias = random({n}, DType::float32, 3);
    const auto results = with_thread_counts([&] { return raw::linear(a, b, bias, true).to_vector<double>(); });
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

TEST(Gemm, OutThatOverlapsAnInput) {
  const Tensor a = whole_numbers({20, 20}, DType::float32, 1);
  const Tensor b = whole_numbers({20, 20}, DType::float32, 2);
  const auto expected = product(a, b, {});
  const Tensor copy = raw::clone(a);
  raw::matmul(copy, b, copy);
  EXPECT_EQ(copy.to_vector<double>(), expected);
  const Tensor other = raw::clone(b);
  raw::matmul(a, other, other);
  EXPECT_EQ(other.to_vector<double>(), expected);
}

TEST(Gemm, WrongArgumentsAreNamed) {
  EXPECT_EQ(error_of([] { raw::matmul(zeros({2, 3}), zeros({4, 5})); }),
            "matmul: inner sizes 3 and 4 differ (arguments [2, 3] and [4, 5])");
  EXPECT_NE(error_of([] { raw::matmul(zeros({}), zeros({4, 5})); }).find("at least one dimension"), std::string::npos);
  EXPECT_NE(error_of([] {
              raw::matmul(zeros({2, 3}), zeros({3, 5}, {DType::float64, Device::cpu()}));
            }).find("float32 and float64"),
            std::string::npos);
  EXPECT_NE(error_of([] { raw::matmul(zeros({2, 3}), zeros({3, 5}), zeros({2, 4})); }).find("[2, 4], expected [2, 5]"),
            std::string::npos);
  EXPECT_NE(error_of([] { raw::matmul(zeros({2, 3}), zeros({3, 5}), {}, true); }).find("accumulate needs"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              raw::matmul(ones({2, 2}, {DType::int64, Device::cpu()}), ones({2, 2}, {DType::int64, Device::cpu()}));
            }).find("int64"),
            std::string::npos);
  EXPECT_NE(error_of([] { raw::linear(zeros({2, 3}), zeros({5, 4}), {}); }).find("does not fit weight [5, 4]"),
            std::string::npos);
  EXPECT_NE(error_of([] { raw::linear(zeros({2, 3}), zeros({5, 3}), zeros({4})); }).find("bias"), std::string::npos);
  EXPECT_NE(error_of([] { raw::linear_weight_grad(zeros({2, 3}), zeros({3, 4})); }).find("does not fit"),
            std::string::npos);
}

}  // namespace
}  // namespace ddp
