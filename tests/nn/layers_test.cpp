#include <cmath>
#include <memory>

#include "ddp/core/error.h"
#include "ddp/nn/nn.h"
#include "support/expect_error.h"

namespace ddp::nn {
namespace {

using test::expect_error;
using Floats = std::vector<float>;

void set(Tensor tensor, const Floats& values) { tensor.detach().copy_(ddp::tensor(values, tensor.sizes())); }

TEST(Linear, ComputesAndChecks) {
  Linear layer(3, 2);
  EXPECT_EQ(layer.weight.sizes(), (Dims{2, 3}));
  EXPECT_EQ(layer.bias.sizes(), (Dims{2}));
  set(layer.weight, {1, 2, 3, 4, 5, 6});
  set(layer.bias, {10, -10});
  const Tensor x = tensor(Floats{1, 0, 1, 2, 1, 0}, {2, 3});
  EXPECT_EQ(layer(x).to_vector<float>(), (Floats{14, 0, 14, 3}));
  sum(layer(x)).backward();
  EXPECT_EQ(layer.weight.grad().to_vector<float>(), (Floats{3, 1, 1, 3, 1, 1}));
  EXPECT_EQ(layer.bias.grad().to_vector<float>(), (Floats{2, 2}));
  expect_error<InvalidArgument>([&layer] { layer(zeros({2, 4})); }, {"Linear", "[2, 4]", "in_features = 3"});
  expect_error<InvalidArgument>([] { Linear(0, 2); }, {"in_features 0"});
  Linear plain(3, 2, {.bias = false, .dtype = DType::float64});
  EXPECT_FALSE(plain.bias.defined());
  EXPECT_EQ(plain.parameters().size(), 1U);
  EXPECT_EQ(plain.weight.dtype(), DType::float64);
}

TEST(Conv2d, ComputesAndChecks) {
  Conv2d layer(2, 1, Size2(1, 2), {.stride = Size2(1, 2), .padding = Size2(0, 1)});
  EXPECT_EQ(layer.weight.sizes(), (Dims{1, 2, 1, 2}));
  set(layer.weight, {1, 2, 10, 20});
  set(layer.bias, {0.5F});
  const Tensor x = tensor(Floats{1, 2, 3, 4}, {1, 2, 1, 2});  // channels {1, 2} and {3, 4}
  // Padded rows: 0 1 2 0 and 0 3 4 0; windows start at 0 and 2.
  EXPECT_EQ(layer(x).to_vector<float>(), (Floats{62.5F, 42.5F}));
  expect_error<InvalidArgument>([&layer] { layer(zeros({1, 3, 4, 4})); },
                                {"Conv2d", "[1, 3, 4, 4]", "in_channels = 2"});
  expect_error<InvalidArgument>([&layer] { layer(zeros({2, 4, 4})); }, {"Conv2d", "[2, 4, 4]"});
  expect_error<InvalidArgument>([] { Conv2d(4, 6, 3, {.groups = 4}); },
                                {"groups 4", "in_channels 4", "out_channels 6"});
  expect_error<InvalidArgument>([] { Conv2d(4, 6, 0); }, {"kernel 0x0"});
  expect_error<InvalidArgument>([] { Conv2d(4, 6, 3, {.stride = 0}); }, {"stride 0x0"});
  EXPECT_EQ(Conv2d(4, 6, 3, {.groups = 2, .bias = false}).weight.sizes(), (Dims{6, 2, 3, 3}));
}

TEST(BatchNorm2d, TrainsEvaluatesAndCounts) {
  BatchNorm2d layer(1, {.eps = 1e-12, .momentum = 0.25});
  EXPECT_EQ(layer.named_buffers().size(), 3U);
  EXPECT_EQ(layer.num_batches_tracked.dtype(), DType::int64);
  const Tensor x = tensor(Floats{2, 6, 2, 6}, {2, 1, 1, 2});  // mean 4, biased variance 4, unbiased 16/3
  const Floats y = layer(x).to_vector<float>();
  const Floats expected = {-1, 1, -1, 1};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(y[i], expected[i], 1e-6);
  EXPECT_EQ(layer.running_mean.to_vector<float>(), (Floats{1}));
  EXPECT_NEAR(layer.running_var.item<float>(), 0.75 + 0.25 * 16 / 3, 1e-6);
  EXPECT_EQ(layer.num_batches_tracked.item<std::int64_t>(), 1);
  layer(x);
  EXPECT_EQ(layer.num_batches_tracked.item<std::int64_t>(), 2);

  layer.eval();
  set(layer.running_mean, {3});
  set(layer.running_var, {0.25F});
  const Floats evaluated = layer(x).to_vector<float>();
  EXPECT_NEAR(evaluated[0], -2, 1e-5);
  EXPECT_NEAR(evaluated[1], 6, 1e-5);
  EXPECT_EQ(layer.num_batches_tracked.item<std::int64_t>(), 2);
  EXPECT_EQ(layer.running_mean.to_vector<float>(), (Floats{3}));

  layer.train();
  layer.to(Device::cpu(1));
  layer.to(DType::float64);
  layer(to(to(x, Device::cpu(1)), DType::float64));
  EXPECT_EQ(layer.num_batches_tracked.item<std::int64_t>(), 3);
  EXPECT_EQ(layer.num_batches_tracked.dtype(), DType::int64);
  expect_error<InvalidArgument>([&layer] { layer(zeros({2, 3, 4, 4})); }, {"BatchNorm2d", "[2, 3, 4, 4]", "= 1"});
  expect_error<InvalidArgument>([] { BatchNorm2d(0); }, {"num_features is 0"});
  expect_error<InvalidArgument>([] { BatchNorm2d(1, {.momentum = 1.5}); }, {"momentum is 1.5"});
}

TEST(BatchNorm2d, CanDoWithoutStatisticsAndWeights) {
  BatchNorm2d layer(1, {.affine = false, .track_running_stats = false});
  EXPECT_TRUE(layer.state_dict().empty());
  layer.eval();
  const Floats y = layer(tensor(Floats{10, 30}, {2, 1, 1, 1})).to_vector<float>();
  EXPECT_NEAR(y[0], -1, 1e-6);
  EXPECT_NEAR(y[1], 1, 1e-6);
}

TEST(LayerNorm, ComputesAndChecks) {
  LayerNorm layer({2}, {.eps = 1e-12});
  set(layer.weight, {2, 3});
  set(layer.bias, {100, 0});
  const Floats y = layer(tensor(Floats{1, 5, 0, -2}, {2, 2})).to_vector<float>();
  const Floats expected = {98, 3, 102, -3};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(y[i], expected[i], 1e-5);
  expect_error<InvalidArgument>([&layer] { layer(zeros({2, 3})); }, {"LayerNorm", "[2, 3]", "[2]"});
  expect_error<InvalidArgument>([] { LayerNorm(Dims{}); }, {"LayerNorm"});
  EXPECT_EQ(LayerNorm({2, 3}, {.bias = false}).parameters().size(), 1U);
  EXPECT_TRUE(LayerNorm({2}, {.elementwise_affine = false}).parameters().empty());
}

TEST(Embedding, LooksUpAndAddsGradients) {
  Embedding layer(3, 2);
  set(layer.weight, {1, 2, 3, 4, 5, 6});
  const Tensor index = tensor<std::int64_t>({2, 0, 2});
  const Tensor y = layer(index);
  EXPECT_EQ(y.to_vector<float>(), (Floats{5, 6, 1, 2, 5, 6}));
  sum(y).backward();
  EXPECT_EQ(layer.weight.grad().to_vector<float>(), (Floats{1, 1, 0, 0, 2, 2}));
  expect_error<InvalidArgument>([&layer] { layer(zeros({2})); }, {"Embedding", "float32", "int64"});
}

TEST(Dropout, KeepsScalesAndPassesThrough) {
  Generator generator(5);
  Dropout layer(0.75, &generator);
  const Floats y = layer(ones({4000})).to_vector<float>();
  int kept = 0;
  for (const float value : y) {
    ASSERT_TRUE(value == 0.0F || value == 4.0F);
    kept += value == 4.0F ? 1 : 0;
  }
  EXPECT_NEAR(kept, 1000, 5 * std::sqrt(4000 * 0.25 * 0.75));
  layer.eval();
  EXPECT_EQ(layer(ones({3})).to_vector<float>(), (Floats{1, 1, 1}));
  expect_error<InvalidArgument>([] { Dropout(1.0); }, {"p is 1", "[0, 1)"});
}

TEST(Stateless, CallTheFunctionsOfTheirNames) {
  const Tensor x = tensor<float>({-2, 0, 1});
  EXPECT_EQ(ReLU()(x).to_vector<float>(), (Floats{0, 0, 1}));
  const Floats sigmoid = Sigmoid()(x).to_vector<float>();
  const Floats tanh = Tanh()(x).to_vector<float>();
  const Floats gelu = GELU()(x).to_vector<float>();
  for (std::size_t i = 0; i < 3; ++i) {
    const double v = x.to_vector<double>()[i];
    EXPECT_NEAR(sigmoid[i], 1 / (1 + std::exp(-v)), 1e-6);
    EXPECT_NEAR(tanh[i], std::tanh(v), 1e-6);
    EXPECT_NEAR(gelu[i], v * 0.5 * (1 + std::erf(v / std::sqrt(2.0))), 1e-6);
  }
  const Tensor image = tensor(Floats{1, 2, 3, 4, 5, 6, 7, 8}, {1, 1, 2, 4});
  EXPECT_EQ(MaxPool2d(2)(image).to_vector<float>(), (Floats{6, 8}));
  EXPECT_EQ(MaxPool2d(2, {.stride = 1})(image).to_vector<float>(), (Floats{6, 7, 8}));
  EXPECT_EQ(AvgPool2d(Size2(1, 2))(image).to_vector<float>(), (Floats{1.5F, 3.5F, 5.5F, 7.5F}));
  EXPECT_EQ(AdaptiveAvgPool2d(1)(image).to_vector<float>(), (Floats{4.5F}));
  EXPECT_EQ(Flatten()(zeros({2, 3, 4})).sizes(), (Dims{2, 12}));
  EXPECT_EQ(Flatten(0, 1)(zeros({2, 3, 4})).sizes(), (Dims{6, 4}));
}

TEST(Losses, CallTheFunctionsOfTheirNames) {
  MSELoss mse;
  EXPECT_EQ(mse(tensor<float>({1, 5}), tensor<float>({2, 2})).item<float>(), 5.0F);
  MSELoss total(Reduction::sum);
  EXPECT_EQ(total(tensor<float>({1, 5}), tensor<float>({2, 2})).item<float>(), 10.0F);
  CrossEntropyLoss cross_entropy;
  const Tensor logits = zeros({2, 4});
  EXPECT_NEAR(cross_entropy(logits, tensor<std::int64_t>({0, 3})).item<float>(), std::log(4.0), 1e-6);
  CrossEntropyLoss summed({.reduction = Reduction::sum});
  EXPECT_NEAR(summed(logits, tensor<std::int64_t>({0, 3})).item<float>(), 2 * std::log(4.0), 1e-6);
}

TEST(SequentialModel, LearnsALine) {
  manual_seed(3);
  Sequential model(std::make_shared<Linear>(1, 8), std::make_shared<Tanh>(), std::make_shared<Linear>(8, 1));
  const Tensor x = tensor(Floats{-1, -0.5F, 0, 0.5F, 1}, {5, 1});
  const Tensor y = tensor(Floats{-2, -1, 0, 1, 2}, {5, 1});
  MSELoss loss;
  const float before = loss(model(x), y).item<float>();
  for (int i = 0; i < 200; ++i) {
    model.zero_grad();
    loss(model(x), y).backward();
    for (Tensor& parameter : model.parameters()) parameter.detach().add_(parameter.grad(), -0.1);
  }
  EXPECT_LT(loss(model(x), y).item<float>(), before / 100);
}

}  // namespace
}  // namespace ddp::nn
