#include <gtest/gtest.h>

#include "dense_reference.h"
#include "tensor/loss.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the helpers of these tests

struct Rows {
  std::size_t outer = 1, length = 1, inner = 1;
  Rows(const Dims& sizes, std::size_t dim) : length(static_cast<std::size_t>(sizes[dim])) {
    for (std::size_t i = 0; i < dim; ++i) outer *= static_cast<std::size_t>(sizes[i]);
    for (std::size_t i = dim + 1; i < sizes.size(); ++i) inner *= static_cast<std::size_t>(sizes[i]);
  }
  std::size_t at(std::size_t row, std::size_t i) const { return (row / inner * length + i) * inner + row % inner; }
};

std::vector<double> reference_softmax(const std::vector<double>& x, const Rows& rows) {
  std::vector<double> y(x.size());
  for (std::size_t row = 0; row < rows.outer * rows.inner; ++row) {
    double largest = -INFINITY;
    for (std::size_t i = 0; i < rows.length; ++i) largest = std::max(largest, x[rows.at(row, i)]);
    double sum = 0;
    for (std::size_t i = 0; i < rows.length; ++i) sum += std::exp(x[rows.at(row, i)] - largest);
    for (std::size_t i = 0; i < rows.length; ++i) y[rows.at(row, i)] = std::exp(x[rows.at(row, i)] - largest) / sum;
  }
  return y;
}

const std::vector<std::pair<Dims, std::int64_t>> kShapes = {{{4, 10}, 1},    {{4, 10}, 0},   {{3, 5, 7}, 1},
                                                            {{3, 5, 7}, -1}, {{2, 1000}, 1}, {{1, 1}, 0},
                                                            {{6}, 0},        {{3, 0}, 1},    {{0, 3}, 1}};

TEST(Softmax, ForwardAndGradientAgainstDouble) {
  std::uint64_t seed = 1;
  for (const DType dtype : kDense) {
    for (const auto& [sizes, dim] : kShapes) {
      const Rows rows(sizes, wrap_dim(dim, sizes.size()));
      const Tensor x = random(sizes, dtype, ++seed, -6, 6);
      const Tensor grad = random(sizes, dtype, ++seed);
      const auto expected = reference_softmax(x.to_vector<double>(), rows);
      auto logs = expected;
      for (double& value : logs) value = std::log(value);
      // Rounding of the result, and of the exponential's argument (up to 12) and polynomial in float.
      const double relative = dtype == DType::float64 ? 1e-14 : std::max(2 * epsilon(dtype), 4e-6);
      const double step = dtype == DType::float16 ? 0x1p-24 : 0;  // below 2^-14 float16 has steps of 2^-24
      for (const Layout layout : kLayouts) {
        poison();
        const Tensor xl = lay_out(x, layout);
        EXPECT_EQ(difference(raw::softmax(xl, dim), expected, relative, step), "");
        EXPECT_EQ(difference(raw::log_softmax(xl, dim), logs, relative, relative), "");
        // Gradients at the results as they are stored.
        const Tensor y = raw::softmax(xl, dim);
        const Tensor l = raw::log_softmax(xl, dim);
        const auto g = grad.to_vector<double>();
        const auto yv = y.to_vector<double>();
        const auto lv = l.to_vector<double>();
        std::vector<double> y_grad(g.size());
        std::vector<double> l_grad(g.size());
        for (std::size_t row = 0; row < rows.outer * rows.inner; ++row) {
          double dot = 0;
          double sum = 0;
          for (std::size_t i = 0; i < rows.length; ++i) {
            dot += g[rows.at(row, i)] * yv[rows.at(row, i)];
            sum += g[rows.at(row, i)];
          }
          for (std::size_t i = 0; i < rows.length; ++i) {
            const std::size_t at = rows.at(row, i);
            y_grad[at] = yv[at] * (g[at] - dot);
            l_grad[at] = g[at] - std::exp(lv[at]) * sum;
          }
        }
        EXPECT_EQ(
            difference(raw::softmax_grad(lay_out(grad, layout), lay_out(y, layout), dim), y_grad, relative, relative),
            "");
        EXPECT_EQ(difference(raw::log_softmax_grad(lay_out(grad, layout), l, dim), l_grad, relative, 4 * relative), "");
      }
    }
  }
}

TEST(Softmax, LargeNumbersAndInfinities) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor x = make({1000, 1000, -1000, -infinity, 0, -infinity}, {2, 3}, DType::float32);
  EXPECT_EQ(raw::softmax(x, 1).to_vector<float>(), (std::vector<float>{0.5F, 0.5F, 0, 0, 1, 0}));
  const auto logs = raw::log_softmax(x, 1).to_vector<float>();
  EXPECT_FLOAT_EQ(logs[0], -std::log(2.0F));
  EXPECT_FLOAT_EQ(logs[2], -2000 - std::log(2.0F));
  EXPECT_EQ(logs[3], -infinity);
  EXPECT_EQ(logs[4], 0);
  EXPECT_TRUE(std::isnan(raw::softmax(full({1, 2}, -infinity), 1).to_vector<float>()[0]));
  EXPECT_EQ(raw::softmax(full({}, 5), 0).item<float>(), 1);
  EXPECT_NE(error_of([] { raw::softmax(zeros({2, 3}), 2); }), "no error");
  EXPECT_NE(error_of([] { raw::softmax_grad(zeros({2, 3}), zeros({2, 4}), 1); }).find("gradient"), std::string::npos);
}

TEST(CrossEntropy, LossAndGradientAgainstDouble) {
  for (const DType dtype : kDense) {
    for (const auto& [n, c] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {5, 10}, {64, 10}, {3, 9000}}) {
      for (const double smoothing : {0.0, 0.1, 1.0}) {
        for (const auto reduction : {raw::Reduction::mean, raw::Reduction::sum}) {
          const Tensor logits = random({n, c}, dtype, 1, -4, 4);
          const Tensor target = raw::to(random({n}, DType::float64, 2, 0, static_cast<double>(c)), DType::int64);
          const Tensor grad = full({}, 2, {dtype, Device::cpu()});
          const auto t = target.to_vector<std::int64_t>();
          const auto p = reference_softmax(logits.to_vector<double>(), Rows({n, c}, 1));
          const double scale = reduction == raw::Reduction::mean ? 1.0 / static_cast<double>(n) : 1;
          double loss = 0;
          std::vector<double> expected(p.size());
          for (std::size_t i = 0; i < p.size(); ++i) {
            const std::size_t row = i / static_cast<std::size_t>(c);
            const bool own = static_cast<std::int64_t>(i % static_cast<std::size_t>(c)) == t[row];
            const double weight = smoothing / static_cast<double>(c) + (own ? 1 - smoothing : 0);
            loss -= scale * weight * std::log(p[i]);
            expected[i] = 2 * scale * (p[i] - weight);
          }
          // Log-probabilities, up to 18 in size, are stored in the dtype: that error goes into both.
          const double relative = dtype == DType::float64 ? 1e-13 : std::max(20 * epsilon(dtype), 1e-5);
          for (const Layout layout : kLayouts) {
            poison();
            const auto y = raw::cross_entropy(lay_out(logits, layout), lay_out(target, layout), reduction, smoothing);
            EXPECT_EQ(y.loss.numel(), 1);
            EXPECT_EQ(difference(y.loss, {loss}, relative, relative), "");
            EXPECT_EQ(difference(raw::cross_entropy_grad(grad, y.log_probs, target, reduction, smoothing), expected,
                                 relative, 2 * relative * scale),
                      "");
          }
        }
      }
    }
  }
}

TEST(CrossEntropy, NoRows) {
  const Tensor none = zeros({0}, {DType::int64, Device::cpu()});
  const auto mean = raw::cross_entropy(zeros({0, 3}), none, raw::Reduction::mean, 0);
  EXPECT_TRUE(std::isnan(mean.loss.item<float>()));
  EXPECT_EQ(raw::cross_entropy(zeros({0, 3}), none, raw::Reduction::sum, 0).loss.item<float>(), 0);
  EXPECT_EQ(raw::cross_entropy_grad(ones({}), mean.log_probs, none, raw::Reduction::mean, 0).sizes(), (Dims{0, 3}));
}

TEST(CrossEntropy, WrongArgumentsAreNamed) {
  const auto target = [](std::int64_t label) { return tensor<std::int64_t>({0, 9, label}); };
  EXPECT_EQ(error_of([&] { raw::cross_entropy(zeros({3, 10}), target(10), raw::Reduction::mean, 0); }),
            "cross_entropy: label 10 in row 2; allowed: 0 to 9");
  EXPECT_EQ(error_of([&] { raw::cross_entropy(zeros({3, 10}), target(-1), raw::Reduction::mean, 0); }),
            "cross_entropy: label -1 in row 2; allowed: 0 to 9");
  EXPECT_NE(error_of([&] {
              raw::cross_entropy(zeros({2, 10}), target(1), raw::Reduction::mean, 0);
            }).find("logits [2, 10] and target [3]"),
            std::string::npos);
  EXPECT_NE(
      error_of([&] { raw::cross_entropy(zeros({3, 10}), zeros({3}), raw::Reduction::mean, 0); }).find("expected int64"),
      std::string::npos);
  EXPECT_NE(error_of([&] { raw::cross_entropy(zeros({3, 10}), target(1), raw::Reduction::mean, 1.5); }).find("1.5"),
            std::string::npos);
}

TEST(MseLoss, LossAndGradient) {
  for (const DType dtype : kDense) {
    for (const Dims& sizes : {Dims{4, 5}, Dims{3, 7, 2}, Dims{20000}, Dims{}}) {
      const Tensor x = random(sizes, dtype, 1);
      const Tensor target = random(sizes, dtype, 2);
      const auto a = x.to_vector<double>();
      const auto b = target.to_vector<double>();
      for (const auto reduction : {raw::Reduction::mean, raw::Reduction::sum}) {
        const double scale = reduction == raw::Reduction::mean ? 1.0 / static_cast<double>(a.size()) : 1;
        double loss = 0;
        std::vector<double> expected;
        for (std::size_t i = 0; i < a.size(); ++i) {
          loss += scale * (a[i] - b[i]) * (a[i] - b[i]);
          expected.push_back(3 * scale * 2 * (a[i] - b[i]));
        }
        const double relative = 4 * epsilon(dtype == DType::float64 ? dtype : DType::float32) * 8 + 2 * epsilon(dtype);
        // float16 underflows on the mean over many elements: its smallest step is 2^-24.
        const double absolute = dtype == DType::float16 ? 0x1p-24 : 0;
        for (const Layout layout : kLayouts) {
          poison();
          const Tensor xl = lay_out(x, layout);
          const Tensor tl = lay_out(target, layout);
          if (dtype != DType::float16 || loss < 60000) {
            EXPECT_EQ(difference(raw::mse_loss(xl, tl, reduction), {loss}, relative), "");
          }
          EXPECT_EQ(difference(raw::mse_loss_grad(full({}, 3, {dtype, Device::cpu()}), xl, tl, reduction), expected,
                               relative, absolute),
                    "");
        }
      }
    }
  }
  EXPECT_TRUE(std::isnan(raw::mse_loss(zeros({0}), zeros({0}), raw::Reduction::mean).item<float>()));
  EXPECT_EQ(raw::mse_loss(zeros({0}), zeros({0}), raw::Reduction::sum).item<float>(), 0);
  EXPECT_NE(error_of([] { raw::mse_loss(zeros({2}), zeros({3}), raw::Reduction::sum); }).find("target"),
            std::string::npos);
}

TEST(CountCorrect, FirstLargestAndNaN) {
  const Tensor logits = make({1, 3, 3, 0, -1, -2, 5, std::nan(""), 9}, {3, 3}, DType::float32);
  for (const DType dtype : kDense) {
    const Tensor x = raw::to(logits, dtype);
    EXPECT_EQ(raw::count_correct(x, tensor<std::int64_t>({1, 0, 1})).item<std::int64_t>(), 3);
    EXPECT_EQ(raw::count_correct(x, tensor<std::int64_t>({2, 0, 2})).item<std::int64_t>(), 1);
  }
  EXPECT_EQ(raw::count_correct(zeros({0, 3}), zeros({0}, {DType::int64, Device::cpu()})).item<std::int64_t>(), 0);
}

TEST(Embedding, LookUpAndGradient) {
  const Tensor index = raw::reshape(tensor<std::int64_t>({3, 0, 3, 1, 3, 0}), {2, 3});
  for (const DType dtype : kDense) {
    const Tensor weight = whole_numbers({5, 37}, dtype, 1);
    const Tensor grad = whole_numbers({2, 3, 37}, dtype, 2);
    const auto wv = weight.to_vector<double>();
    const auto gv = grad.to_vector<double>();
    const auto at = index.to_vector<std::int64_t>();
    std::vector<double> rows;
    std::vector<double> sums(wv.size());
    for (std::size_t i = 0; i < at.size(); ++i) {
      for (std::size_t j = 0; j < 37; ++j) {
        rows.push_back(wv[static_cast<std::size_t>(at[i]) * 37 + j]);
        sums[static_cast<std::size_t>(at[i]) * 37 + j] += gv[i * 37 + j];
      }
    }
    auto added = sums;
    for (double& value : added) value += 4;
    for (const Layout layout : kLayouts) {
      poison();
      const Tensor y = raw::embedding(lay_out(weight, layout), lay_out(index, layout));
      EXPECT_EQ(y.sizes(), (Dims{2, 3, 37}));
      EXPECT_EQ(y.to_vector<double>(), rows);
      const Tensor g = lay_out(grad, layout);
      EXPECT_EQ(raw::embedding_grad(g, index, {5, 37}).to_vector<double>(), sums);
      const Tensor into = lay_out(full({5, 37}, std::nan(""), {dtype, Device::cpu()}), layout);
      raw::embedding_grad(g, index, {5, 37}, into);
      EXPECT_EQ(into.to_vector<double>(), sums);
      const Tensor sum = lay_out(full({5, 37}, 4, {dtype, Device::cpu()}), layout);
      raw::embedding_grad(g, index, {5, 37}, sum, true);
      EXPECT_EQ(sum.to_vector<double>(), added);
    }
  }
  const Tensor none = zeros({0}, {DType::int64, Device::cpu()});
  EXPECT_EQ(raw::embedding(zeros({5, 2}), none).sizes(), (Dims{0, 2}));
  EXPECT_EQ(raw::embedding_grad(zeros({0, 2}), none, {5, 2}).to_vector<float>(), std::vector<float>(10, 0));
  EXPECT_EQ(error_of([] { raw::embedding(zeros({5, 2}), tensor<std::int64_t>({1, 5})); }),
            "embedding: index 5 at position 1; allowed: 0 to 4");
  EXPECT_NE(error_of([] { raw::embedding(zeros({5, 2}), zeros({3})); }).find("expected int64"), std::string::npos);
}

TEST(LossFamily, SameBitsForAnyNumberOfThreads) {
  const Tensor x = random({700, 300}, DType::float32, 1);
  const Tensor y = random({700, 300}, DType::float32, 2);
  const Tensor target = raw::to(random({700}, DType::float64, 3, 0, 300), DType::int64);
  const auto results = with_thread_counts([&] {
    auto all = raw::softmax(x, 0).to_vector<double>();
    const auto entropy = raw::cross_entropy(x, target, raw::Reduction::mean, 0.1);
    all.push_back(entropy.loss.item<double>());
    all.push_back(raw::mse_loss(x, y, raw::Reduction::mean).item<double>());
    for (const Tensor& t : {raw::cross_entropy_grad(ones({}), entropy.log_probs, target, raw::Reduction::mean, 0.1),
                            raw::embedding_grad(x, target, {300, 300})}) {
      const auto values = t.to_vector<double>();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  });
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

}  // namespace
}  // namespace ddp
