#include "ddp/nn/init.h"

#include <algorithm>
#include <cmath>

#include "ddp/core/error.h"
#include "ddp/nn/nn.h"
#include "support/expect_error.h"

namespace ddp::nn {
namespace {

using test::expect_error;

struct Moments {
  double mean = 0;
  double deviation = 0;
  double largest = 0;
};
Moments moments(const Tensor& tensor) {
  Moments result;
  const std::vector<double> values = tensor.to_vector<double>();
  for (const double value : values) {
    result.mean += value / static_cast<double>(values.size());
    result.largest = std::max(result.largest, std::abs(value));
  }
  for (const double value : values) {
    result.deviation += (value - result.mean) * (value - result.mean) / static_cast<double>(values.size());
  }
  result.deviation = std::sqrt(result.deviation);
  return result;
}

/// Within the bound, filling it, with the mean and deviation of a uniform distribution (5 standard errors).
void expect_uniform(const Tensor& tensor, double bound) {
  const Moments m = moments(tensor);
  const auto n = static_cast<double>(tensor.numel());
  EXPECT_LE(m.largest, bound * (1 + 1e-6));
  EXPECT_GE(m.largest, bound * (1 - 10 / n));
  EXPECT_NEAR(m.mean, 0, 5 * bound / std::sqrt(3 * n));
  EXPECT_NEAR(m.deviation, bound / std::sqrt(3.0), 5 * bound * 0.26 / std::sqrt(n));
}

TEST(Init, LayersStartAsPyTorchs) {
  manual_seed(11);
  const Linear linear(100, 300);
  expect_uniform(linear.weight, 0.1);  // 1 / sqrt(100)
  expect_uniform(linear.bias, 0.1);
  const Conv2d conv(32, 64, Size2(3, 5), {.groups = 2});  // fan in 16 * 15 = 240
  expect_uniform(conv.weight, 1 / std::sqrt(240.0));
  expect_uniform(conv.bias, 1 / std::sqrt(240.0));
  const Embedding embedding(200, 100);
  const Moments m = moments(embedding.weight);
  EXPECT_NEAR(m.mean, 0, 5 / std::sqrt(20000.0));
  EXPECT_NEAR(m.deviation, 1, 5 / std::sqrt(2 * 20000.0));
  EXPECT_GT(m.largest, 3);
}

TEST(Init, FormulasAndFans) {
  const init::Fans fans = init::fans_of(zeros({8, 4, 3, 5}));
  EXPECT_EQ(fans.in, 60);
  EXPECT_EQ(fans.out, 120);
  Generator generator(2);
  const Tensor weight = empty({300, 100}, {.dtype = DType::float64});
  init::kaiming_uniform_(weight, 0, init::FanMode::fan_in, &generator);
  expect_uniform(weight, std::sqrt(2.0) * std::sqrt(3.0 / 100));
  init::kaiming_uniform_(weight, 1, init::FanMode::fan_out, &generator);
  expect_uniform(weight, std::sqrt(3.0 / 300));
  init::xavier_uniform_(weight, 2, &generator);
  expect_uniform(weight, 2 * std::sqrt(6.0 / 400));
  init::kaiming_normal_(weight, 0, init::FanMode::fan_in, &generator);
  EXPECT_NEAR(moments(weight).deviation, std::sqrt(2.0 / 100), 5 * 0.1414 / std::sqrt(60000.0));
  init::xavier_normal_(weight, 1, &generator);
  EXPECT_NEAR(moments(weight).deviation, std::sqrt(2.0 / 400), 5 * 0.0707 / std::sqrt(60000.0));
  init::constant_(weight, 2.5);
  EXPECT_EQ(weight.to_vector<double>(), std::vector<double>(30000, 2.5));
  expect_error<InvalidArgument>([] { init::kaiming_uniform_(zeros({5})); }, {"2 dimensions", "[5]"});
  expect_error<InvalidArgument>([] { init::normal_(zeros({5}, {.dtype = DType::int64})); }, {"int64"});
  expect_error<InvalidArgument>([] { init::uniform_(zeros({5}), 2, 1); }, {"low 2", "high 1"});
  expect_error<InvalidArgument>([] { init::uniform_(Tensor()); }, {"undefined"});
}

TEST(Init, TheSeedDecidesAndStridesDoNot) {
  manual_seed(21);
  const std::vector<float> first = Linear(7, 5).weight.to_vector<float>();
  const std::vector<float> second = Linear(7, 5).weight.to_vector<float>();
  manual_seed(21);
  EXPECT_EQ(Linear(7, 5).weight.to_vector<float>(), first);
  EXPECT_NE(first, second);

  Generator a(4);
  Generator b(4);
  const Tensor plain = zeros({3, 4});
  std::vector<float> memory(12);
  const Tensor strided = from_blob(memory.data(), {3, 4}, {}, {1, 3});
  init::uniform_(plain, -1, 1, &a);
  init::uniform_(strided, -1, 1, &b);
  EXPECT_EQ(plain.to_vector<float>(), strided.to_vector<float>());

  // A tensor that is trained can be filled, without being recorded.
  Tensor trained = zeros({2, 2}).set_requires_grad();
  const std::uint32_t version = trained.version();
  init::ones_(trained);
  EXPECT_TRUE(trained.is_leaf());
  EXPECT_GT(trained.version(), version);
  init::uniform_(trained);
  EXPECT_TRUE(trained.is_leaf());
}

}  // namespace
}  // namespace ddp::nn
