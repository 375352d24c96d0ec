#include <gtest/gtest.h>

#include "support/grad_check.h"

namespace ddp {
namespace {

using test::check_gradients;
using test::GradInput;
using Inputs = std::vector<Tensor>;

TEST(GradSoftmax, EachDimension) {
  for (const std::int64_t dim : {0, 1, -1}) {
    check_gradients([&](const Inputs& in) { return softmax(in[0], dim); }, {{Dims{2, 3, 4}}});
    check_gradients([&](const Inputs& in) { return log_softmax(in[0], dim); }, {{Dims{2, 3, 4}}});
  }
  check_gradients([](const Inputs& in) { return softmax(in[0], 1); }, {{Dims{0, 4}}});
  check_gradients([](const Inputs& in) { return log_softmax(in[0], 1); }, {{Dims{0, 4}}});
  check_gradients([](const Inputs& in) { return softmax(in[0], 1); }, {{Dims{3, 0}}});
  check_gradients([](const Inputs& in) { return log_softmax(in[0], 1); }, {{Dims{3, 0}}});
}

TEST(GradLoss, CrossEntropy) {
  const Tensor target = tensor<std::int64_t>({2, 0, 3, 2, 1});
  for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
    for (const double smoothing : {0.0, 0.2}) {
      check_gradients(
          [&](const Inputs& in) {
            return cross_entropy(in[0], target, {.reduction = reduction, .label_smoothing = smoothing});
          },
          {{Dims{5, 4}, -2.0, 2.0}});
    }
  }
  check_gradients(
      [](const Inputs& in) {
        return cross_entropy(in[0], zeros({0}, {DType::int64, Device::cpu()}), {.reduction = Reduction::sum});
      },
      {{Dims{0, 4}}});
}

TEST(GradLoss, CrossEntropyWithStridedTargets) {
  const Tensor pairs = tensor(std::vector<std::int64_t>{2, 9, 0, 9, 3, 9}, {3, 2});
  const Tensor one = tensor(std::vector<std::int64_t>{1}, {1});
  for (const Tensor& target : {select(pairs, 1, 0), expand(one, {3})}) {
    check_gradients([&](const Inputs& in) { return cross_entropy(in[0], target, {.label_smoothing = 0.1}); },
                    {{Dims{3, 4}, -2.0, 2.0}});
  }
}

TEST(GradLoss, MeanSquaredError) {
  for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
    check_gradients([&](const Inputs& in) { return mse_loss(in[0], in[1], reduction); }, {{Dims{3, 4}}, {Dims{3, 4}}});
    check_gradients([&](const Inputs& in) { return mse_loss(in[0], in[1], reduction); },
                    {{Dims{3, 4}}, {Dims{3, 4}, -1.0, 1.0, false}});
  }
  check_gradients([](const Inputs& in) { return mse_loss(in[0], in[1], Reduction::sum); },
                  {{Dims{0, 4}}, {Dims{0, 4}}});
}

TEST(GradLookup, Embedding) {
  const Tensor index = tensor(std::vector<std::int64_t>{4, 0, 4, 1, 4, 2}, {2, 3});
  check_gradients([&](const Inputs& in) { return embedding(index, in[0]); }, {{Dims{5, 3}}});
  check_gradients([&](const Inputs& in) { return embedding(transpose(index, 0, 1), in[0]); }, {{Dims{5, 3}}});
  check_gradients([&](const Inputs& in) { return embedding(expand(slice(index, 0, 1, 2), {4, 3}), in[0]); },
                  {{Dims{5, 3}}});
  const Tensor none = zeros({0}, {DType::int64, Device::cpu()});
  check_gradients([&](const Inputs& in) { return embedding(none, in[0]); }, {{Dims{5, 3}}});
}

TEST(GradLookup, Dropout) {
  // The same generator state each time: the function is then a fixed linear one.
  for (const double p : {0.0, 0.3, 1.0}) {
    for (const Dims& sizes : {Dims{5, 7}, Dims{0, 3}}) {
      check_gradients(
          [&](const Inputs& in) {
            Generator generator(7);
            return dropout(in[0], p, true, &generator) * 1.0;
          },
          {{sizes}});
    }
  }
  Tensor x = ones({3});
  x.set_requires_grad();
  EXPECT_TRUE(dropout(x, 0.5, false).is_same(x));
  EXPECT_THROW(dropout(x, 1.5), InvalidArgument);
  EXPECT_THROW(dropout(x, -0.1), InvalidArgument);
}

}  // namespace
}  // namespace ddp
