#include "tensor/norm.h"

#include <gtest/gtest.h>

#include "dense_reference.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the helpers of these tests

// Normalisation in double: element i belongs to set set_of[i] and to parameter parameter_of[i].
struct Reference {
  std::vector<std::size_t> set_of, parameter_of;
  std::size_t sets = 0;
  std::vector<double> mean, variance;

  static Reference batch(const Dims& sizes) {
    Reference r;
    const std::int64_t area = sizes.product() / std::max<std::int64_t>(1, sizes[0] * sizes[1]);
    for (std::int64_t i = 0; i < sizes.product(); ++i) {
      r.set_of.push_back(static_cast<std::size_t>(i / area % sizes[1]));
    }
    r.parameter_of = r.set_of;
    r.sets = static_cast<std::size_t>(sizes[1]);
    return r;
  }
  static Reference layer(const Dims& sizes, std::int64_t length) {
    Reference r;
    for (std::int64_t i = 0; i < sizes.product(); ++i) {
      r.set_of.push_back(static_cast<std::size_t>(i / length));
      r.parameter_of.push_back(static_cast<std::size_t>(i % length));
    }
    r.sets = static_cast<std::size_t>(sizes.product() / length);
    return r;
  }
  void find(const std::vector<double>& x) {
    std::vector<double> count(sets);
    mean.assign(sets, 0);
    variance.assign(sets, 0);
    for (std::size_t i = 0; i < x.size(); ++i) count[set_of[i]] += 1;
    for (std::size_t i = 0; i < x.size(); ++i) mean[set_of[i]] += x[i] / count[set_of[i]];
    for (std::size_t i = 0; i < x.size(); ++i) {
      variance[set_of[i]] += (x[i] - mean[set_of[i]]) * (x[i] - mean[set_of[i]]) / count[set_of[i]];
    }
  }
  double normal(const std::vector<double>& x, std::size_t i, double eps) const {
    return (x[i] - mean[set_of[i]]) / std::sqrt(variance[set_of[i]] + eps);
  }
  std::vector<double> forward(const std::vector<double>& x, const std::vector<double>& w, const std::vector<double>& b,
                              double eps) const {
    std::vector<double> y;
    for (std::size_t i = 0; i < x.size(); ++i) {
      y.push_back(normal(x, i, eps) * (w.empty() ? 1 : w[parameter_of[i]]) + (b.empty() ? 0 : b[parameter_of[i]]));
    }
    return y;
  }
  struct Gradients {
    std::vector<double> x, w, b;
  };
  Gradients backward(const std::vector<double>& g, const std::vector<double>& x, const std::vector<double>& w,
                     std::size_t parameters, double eps, bool training) const {
    Gradients result{{}, std::vector<double>(parameters), std::vector<double>(parameters)};
    std::vector<double> count(sets);
    std::vector<double> sum(sets);
    std::vector<double> dot(sets);
    const auto scaled = [&](std::size_t i) { return g[i] * (w.empty() ? 1 : w[parameter_of[i]]); };
    for (std::size_t i = 0; i < x.size(); ++i) {
      count[set_of[i]] += 1;
      sum[set_of[i]] += scaled(i);
      dot[set_of[i]] += scaled(i) * normal(x, i, eps);
      result.w[parameter_of[i]] += g[i] * normal(x, i, eps);
      result.b[parameter_of[i]] += g[i];
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t s = set_of[i];
      const double through = training ? (sum[s] + normal(x, i, eps) * dot[s]) / count[s] : 0;
      result.x.push_back((scaled(i) - through) / std::sqrt(variance[s] + eps));
    }
    return result;
  }
};

constexpr double kEps = 1e-3;

// Rounding of the result; in float also of the statistics, the distance to the mean and the sums (values up
// to about 10 around a mean of up to 3).
double tolerance(DType dtype) { return dtype == DType::float64 ? 1e-12 : std::max(4 * epsilon(dtype), 2e-5); }

std::vector<double> plus(std::vector<double> values, double add) {
  for (double& value : values) value += add;
  return values;
}

const std::vector<Dims> kBatchSizes = {{4, 3, 5, 6}, {2, 5, 1, 1}, {8, 70}, {3, 4, 40}, {64, 2, 9, 9}};

TEST(BatchNorm, TrainingAgainstDouble) {
  std::uint64_t seed = 1;
  for (const DType dtype : kDense) {
    for (const Dims& sizes : kBatchSizes) {
      const Dims c{sizes[1]};
      const Tensor x = random(sizes, dtype, ++seed, 1, 5);
      const Tensor grad = random(sizes, dtype, ++seed);
      const Tensor weight = random(c, dtype, ++seed);
      const Tensor bias = random(c, dtype, ++seed);
      const auto xv = x.to_vector<double>();
      const auto gv = grad.to_vector<double>();
      const auto wv = weight.to_vector<double>();
      auto reference = Reference::batch(sizes);
      reference.find(xv);
      const double n = static_cast<double>(sizes.product() / sizes[1]);
      const double t = tolerance(dtype);
      const DType statistics = dtype == DType::float64 ? dtype : DType::float32;
      const double ts = tolerance(statistics);
      for (const Layout layout : kLayouts) {
        poison();
        const Tensor xl = lay_out(x, layout);
        const Tensor gl = lay_out(grad, layout);
        Tensor unbiased;
        const auto result = raw::batch_norm_train(xl, lay_out(weight, layout), bias, kEps, &unbiased);
        EXPECT_EQ(result.mean.dtype(), statistics);
        EXPECT_EQ(difference(result.y, reference.forward(xv, wv, bias.to_vector<double>(), kEps), t, 2 * t), "");
        EXPECT_EQ(difference(result.mean, reference.mean, ts), "");
        auto expected = reference.variance;
        for (double& value : expected) value *= n / (n - 1);
        EXPECT_EQ(difference(unbiased, expected, ts), "");
        EXPECT_EQ(difference(raw::batch_norm_train(xl, {}, {}, kEps, nullptr).y, reference.forward(xv, {}, {}, kEps), t,
                             2 * t),
                  "");

        // Gradients are of order 1 to sqrt(n); the factor 1/deviation reaches 30 for a set of two close values.
        const auto found = reference.backward(gv, xv, wv, wv.size(), kEps, true);
        const auto grads = raw::batch_norm_train_grad(gl, xl, weight, result.mean, result.invstd);
        const double absolute = 40 * t;
        EXPECT_EQ(difference(grads.x, found.x, t, absolute), "") << to_string(sizes);
        EXPECT_EQ(difference(grads.weight, found.w, t, absolute), "");
        EXPECT_EQ(difference(grads.bias, found.b, t, absolute), "");

        const Tensor into_w = lay_out(full(c, std::nan(""), {dtype, Device::cpu()}), layout);
        const Tensor into_b = lay_out(full(c, 2, {dtype, Device::cpu()}), layout);
        const auto placed =
            raw::batch_norm_train_grad(gl, xl, weight, result.mean, result.invstd, {into_w, false}, {into_b, true});
        EXPECT_TRUE(placed.weight.is_same(into_w));
        EXPECT_TRUE(placed.bias.is_same(into_b));
        EXPECT_EQ(difference(into_w, found.w, t, absolute), "");
        EXPECT_EQ(difference(into_b, plus(found.b, 2), t, absolute), "");
        const auto bare = raw::batch_norm_train_grad(gl, xl, {}, result.mean, result.invstd);
        EXPECT_FALSE(bare.weight.defined());
        EXPECT_EQ(difference(bare.x, reference.backward(gv, xv, {}, wv.size(), kEps, true).x, t, absolute), "");
      }
    }
  }
}

TEST(BatchNorm, EvaluationAgainstDouble) {
  std::uint64_t seed = 500;
  for (const DType dtype : kDense) {
    for (const Dims& sizes : kBatchSizes) {
      const Dims c{sizes[1]};
      const Tensor x = random(sizes, dtype, ++seed);
      const Tensor grad = random(sizes, dtype, ++seed);
      const Tensor weight = random(c, dtype, ++seed);
      const Tensor bias = random(c, dtype, ++seed);
      const Tensor mean = random(c, DType::float32, ++seed);
      const Tensor variance = random(c, DType::float32, ++seed, 0.5, 2);
      auto reference = Reference::batch(sizes);
      reference.mean = mean.to_vector<double>();
      reference.variance = variance.to_vector<double>();
      const auto xv = x.to_vector<double>();
      const auto wv = weight.to_vector<double>();
      const auto found = reference.backward(grad.to_vector<double>(), xv, wv, wv.size(), kEps, false);
      const double t = tolerance(dtype);
      for (const Layout layout : kLayouts) {
        poison();
        const Tensor xl = lay_out(x, layout);
        EXPECT_EQ(difference(raw::batch_norm_eval(xl, weight, bias, lay_out(mean, layout), variance, kEps),
                             reference.forward(xv, wv, bias.to_vector<double>(), kEps), t, 2 * t),
                  "");
        const auto grads = raw::batch_norm_eval_grad(lay_out(grad, layout), xl, weight, mean, variance, kEps);
        EXPECT_EQ(difference(grads.x, found.x, t, t), "");
        EXPECT_EQ(difference(grads.weight, found.w, t, 10 * t), "");
        EXPECT_EQ(difference(grads.bias, found.b, t, 10 * t), "");
      }
    }
  }
}

TEST(BatchNorm, FarFromZeroTheVarianceKeepsItsDigits) {
  // 4096 +- 1: the mean of squares would lose all of it in float.
  const Tensor x = make({4095, 4097, 4095, 4097, 4095, 4097}, {6, 1}, DType::float32);
  Tensor unbiased;
  const auto result = raw::batch_norm_train(x, {}, {}, 0, &unbiased);
  EXPECT_EQ(result.mean.item<float>(), 4096);
  EXPECT_EQ(result.y.to_vector<float>(), (std::vector<float>{-1, 1, -1, 1, -1, 1}));
  EXPECT_FLOAT_EQ(unbiased.item<float>(), 1.2F);
}

TEST(BatchNorm, EmptyAndWrongArguments) {
  Tensor unbiased;
  const auto result = raw::batch_norm_train(zeros({0, 3, 2}), ones({3}), zeros({3}), kEps, &unbiased);
  EXPECT_EQ(result.y.sizes(), (Dims{0, 3, 2}));
  EXPECT_TRUE(std::isnan(result.mean.to_vector<float>()[2]));
  const auto grads =
      raw::batch_norm_train_grad(zeros({0, 3, 2}), zeros({0, 3, 2}), ones({3}), result.mean, result.invstd);
  EXPECT_EQ(grads.weight.to_vector<float>(), std::vector<float>(3, 0));
  EXPECT_EQ(raw::batch_norm_eval(zeros({0, 3}), {}, {}, zeros({3}), ones({3}), kEps).sizes(), (Dims{0, 3}));
  EXPECT_NE(error_of([] { raw::batch_norm_train(zeros({1, 3}), {}, {}, kEps, nullptr); }).find("one value per channel"),
            std::string::npos);
  EXPECT_NE(error_of([] { raw::batch_norm_train(zeros({3}), {}, {}, kEps, nullptr); }).find("[N, C, ..]"),
            std::string::npos);
  EXPECT_NE(error_of([] { raw::batch_norm_train(zeros({2, 3}), ones({2}), {}, kEps, nullptr); }).find("weight"),
            std::string::npos);
  EXPECT_NE(error_of([] { raw::batch_norm_eval(zeros({2, 3}), {}, {}, {}, ones({3}), kEps); }).find("mean"),
            std::string::npos);
}

TEST(LayerNorm, AgainstDouble) {
  std::uint64_t seed = 900;
  struct Case {
    Dims sizes, normalized;
  };
  for (const DType dtype : kDense) {
    for (const auto& [sizes, normalized] : std::vector<Case>{{{6, 10}, {10}},
                                                             {{2, 3, 33}, {33}},
                                                             {{2, 3, 4, 5}, {4, 5}},
                                                             {{40}, {40}},
                                                             {{5, 1}, {1}},
                                                             {{3, 1500}, {1500}}}) {
      const Tensor x = random(sizes, dtype, ++seed, 1, 5);
      const Tensor grad = random(sizes, dtype, ++seed);
      const Tensor weight = random(normalized, dtype, ++seed);
      const Tensor bias = random(normalized, dtype, ++seed);
      const auto xv = x.to_vector<double>();
      const auto gv = grad.to_vector<double>();
      const auto wv = weight.to_vector<double>();
      auto reference = Reference::layer(sizes, normalized.product());
      reference.find(xv);
      const auto found = reference.backward(gv, xv, wv, wv.size(), kEps, true);
      const double t = tolerance(dtype);
      for (const Layout layout : kLayouts) {
        poison();
        const Tensor xl = lay_out(x, layout);
        const Tensor gl = lay_out(grad, layout);
        const auto result = raw::layer_norm(xl, normalized, lay_out(weight, layout), bias, kEps);
        EXPECT_EQ(result.mean.sizes().size(), sizes.size() - normalized.size());
        EXPECT_EQ(difference(result.y, reference.forward(xv, wv, bias.to_vector<double>(), kEps), t, 2 * t), "");
        EXPECT_EQ(
            difference(raw::layer_norm(xl, normalized, {}, {}, kEps).y, reference.forward(xv, {}, {}, kEps), t, 2 * t),
            "");
        const auto grads = raw::layer_norm_grad(gl, xl, normalized, weight, result.mean, result.invstd);
        EXPECT_EQ(difference(grads.x, found.x, t, 40 * t), "") << to_string(sizes);
        EXPECT_EQ(difference(grads.weight, found.w, t, 10 * t), "");
        EXPECT_EQ(difference(grads.bias, found.b, t, 10 * t), "");
        const Tensor into_w = lay_out(full(normalized, 3, {dtype, Device::cpu()}), layout);
        const Tensor into_b = lay_out(full(normalized, std::nan(""), {dtype, Device::cpu()}), layout);
        raw::layer_norm_grad(gl, xl, normalized, weight, result.mean, result.invstd, {into_w, true}, {into_b, false});
        EXPECT_EQ(difference(into_w, plus(found.w, 3), t, 10 * t), "");
        EXPECT_EQ(difference(into_b, found.b, t, 10 * t), "");
      }
    }
  }
}

TEST(LayerNorm, EmptyAndWrongArguments) {
  const auto result = raw::layer_norm(zeros({0, 3}), {3}, ones({3}), zeros({3}), kEps);
  EXPECT_EQ(result.y.sizes(), (Dims{0, 3}));
  EXPECT_EQ(raw::layer_norm_grad(zeros({0, 3}), zeros({0, 3}), {3}, ones({3}), result.mean, result.invstd)
                .weight.to_vector<float>(),
            std::vector<float>(3, 0));
  EXPECT_NE(error_of([] { raw::layer_norm(zeros({2, 3}), {2}, {}, {}, kEps); }).find("not the last of input [2, 3]"),
            std::string::npos);
  EXPECT_NE(error_of([] { raw::layer_norm(zeros({2, 3}), {}, {}, {}, kEps); }), "no error");
  EXPECT_NE(error_of([] { raw::layer_norm(zeros({2, 3}), {3}, ones({2}), {}, kEps); }).find("weight"),
            std::string::npos);
}

TEST(Norm, SameBitsForAnyNumberOfThreads) {
  const Tensor x = random({50, 40, 6, 6}, DType::float32, 1);
  const Tensor g = random({50, 40, 6, 6}, DType::float32, 2);
  const auto results = with_thread_counts([&] {
    const auto batch = raw::batch_norm_train(x, {}, {}, kEps, nullptr);
    const auto layer = raw::layer_norm(x, {6, 6}, {}, {}, kEps);
    const auto batch_grads = raw::batch_norm_train_grad(g, x, {}, batch.mean, batch.invstd);
    const auto layer_grads = raw::layer_norm_grad(g, x, {6, 6}, ones({6, 6}), layer.mean, layer.invstd);
    std::vector<double> all;
    for (const Tensor& t : {batch.y, batch.mean, batch_grads.x, batch_grads.bias, layer.y, layer_grads.x,
                            layer_grads.weight, layer_grads.bias}) {
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
