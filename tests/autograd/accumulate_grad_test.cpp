#include "autograd/accumulate_grad.h"

#include <gtest/gtest.h>

#include <functional>
#include <string_view>

#include "ddp/autograd/function.h"
#include "ddp/autograd/functions.h"
#include "support/layouts.h"
#include "support/poison.h"

namespace ddp {
namespace {

using autograd::accumulator_of;
using test::Layout;
using Numbers = std::vector<double>;

Tensor leaf(const Dims& sizes, double value) {
  Tensor x = full(sizes, value, {DType::float64, Device::cpu()});
  x.set_requires_grad();
  return x;
}

Numbers numbers(const Tensor& x) { return x.to_vector<double>(); }

TEST(Destination, LinearAndConvolutionWriteIntoTheBucket) {
  test::poison_pool();
  Tensor bucket = full({6 + 2 + 8 + 2}, -1.0, {DType::float64, Device::cpu()});
  const auto place = [&](const Dims& sizes, std::int64_t offset) {
    return make_view(bucket, sizes, contiguous_strides(sizes), offset);
  };
  Tensor weight = leaf({2, 3}, 1.0);
  Tensor bias = leaf({2}, 0.0);
  Tensor kernel = leaf({2, 1, 2, 2}, 1.0);
  Tensor kernel_bias = leaf({2}, 0.0);
  std::int64_t offset = 0;
  for (Tensor* parameter : {&weight, &bias, &kernel, &kernel_bias}) {
    accumulator_of(*parameter)->set_destination(place(parameter->sizes(), offset));
    offset += parameter->numel();
    EXPECT_FALSE(parameter->grad().defined());
  }
  const Tensor x = ones({4, 3}, weight.options());
  const Tensor image = ones({1, 1, 3, 3}, weight.options());
  const auto loss = [&] { return sum(linear(x, weight, bias)) + sum(conv2d(image, kernel, kernel_bias)); };
  for (const double factor : {1.0, 2.0, 1.0}) {
    if (factor == 1.0) {
      for (Tensor* parameter : {&weight, &bias, &kernel, &kernel_bias}) parameter->zero_grad();
    }
    loss().backward();
    Numbers want;
    for (int i = 0; i < 8; ++i) want.push_back(4 * factor);   // weight and bias: rows of x
    for (int i = 0; i < 10; ++i) want.push_back(4 * factor);  // kernel and its bias: windows of the image
    EXPECT_EQ(numbers(bucket), want);
    EXPECT_TRUE(weight.grad().shares_storage_with(bucket));
  }
  for (Tensor* parameter : {&weight, &bias, &kernel, &kernel_bias}) {
    EXPECT_EQ(accumulator_of(*parameter)->bytes_copied(), 0);
  }
}

TEST(Destination, EveryFunctionWithParametersWritesDirectly) {
  const TensorOptions options = {DType::float64, Device::cpu()};
  const Tensor image = test::make_layout({2, 3, 2, 2}, Layout::row_major, test::random_values(24, -1, 1, 1));
  const Tensor rows = test::make_layout({4, 3}, Layout::row_major, test::random_values(12, -1, 1, 2));
  const Tensor index = tensor<std::int64_t>({1, 0, 1});
  struct Case {
    const char* name;
    Dims weight;
    std::function<Tensor(const Tensor&, const Tensor&)> function;
  };
  const std::vector<Case> cases = {
      {"batch_norm", {3}, [&](const Tensor& w, const Tensor& b) { return batch_norm(image, {}, {}, w, b, true); }},
      {"batch_norm, evaluation",
       {3},
       [&](const Tensor& w, const Tensor& b) {
         return batch_norm(image, zeros({3}, options), ones({3}, options), w, b, false);
       }},
      {"layer_norm", {3}, [&](const Tensor& w, const Tensor& b) { return layer_norm(rows, {3}, w, b); }},
      {"embedding", {3, 3}, [&](const Tensor& w, const Tensor& b) { return embedding(index, w) + b; }},
      {"matmul", {3, 3}, [&](const Tensor& w, const Tensor& b) { return matmul(rows, w) + b; }},
      {"select", {3, 3}, [&](const Tensor& w, const Tensor& b) { return select(w, 0, 1) * rows + b; }},
      {"matmul, left",
       {3, 3},
       [&](const Tensor& w, const Tensor& b) { return matmul(w, transpose(rows, 0, 1)) + sum(b); }},
  };
  for (const auto& [name, sizes, function] : cases) {
    SCOPED_TRACE(name);
    Tensor weight = leaf(sizes, 0.5);
    Tensor bias = leaf({3}, 0.25);
    sum(function(weight, bias)).backward();
    const Numbers weight_grad = numbers(weight.grad());
    const Numbers bias_grad = numbers(bias.grad());
    for (Tensor* parameter : {&weight, &bias}) {
      parameter->zero_grad();
      accumulator_of(*parameter)->set_destination(test::make_layout(parameter->sizes(), Layout::row_major));
    }
    sum(function(weight, bias)).backward();
    EXPECT_EQ(numbers(weight.grad()), weight_grad);
    EXPECT_EQ(numbers(bias.grad()), bias_grad);
    EXPECT_EQ(accumulator_of(weight)->bytes_copied(), 0);
    // The gradient of `sum(b)` is one number spread out: a view that has to be copied.
    EXPECT_EQ(accumulator_of(bias)->bytes_copied(), std::string_view(name) == "matmul, left" ? 24 : 0);
  }
}

TEST(Destination, ParameterUsedTwiceIsStillWrittenDirectly) {
  Tensor weight = leaf({2, 2}, 1.0);
  const Tensor place = test::make_layout({2, 2}, Layout::transposed);
  accumulator_of(weight)->set_destination(place);
  const Tensor x = ones({3, 2}, weight.options());
  for (int i = 0; i < 2; ++i) {
    weight.zero_grad();
    sum(linear(x, weight) + linear(x, weight)).backward();
    EXPECT_EQ(numbers(place), (Numbers{6, 6, 6, 6}));
  }
  EXPECT_EQ(accumulator_of(weight)->bytes_copied(), 0);
}

TEST(Destination, OtherContributionBetweenTwoDirectOnes) {
  for (int order = 0; order < 3; ++order) {
    Tensor weight = leaf({2, 2}, 1.0);
    const Tensor place = test::make_layout({2, 2}, Layout::row_major);
    accumulator_of(weight)->set_destination(place);
    const Tensor x = ones({3, 2}, weight.options());
    Tensor y = zeros({3, 2}, weight.options());
    // Recorded in this order, so run in the opposite one.
    for (int i = 0; i < 3; ++i) {
      y = y + (i == order ? sum(weight * 10.0) : linear(x, weight));
    }
    sum(y).backward();
    EXPECT_EQ(numbers(place), (Numbers{66, 66, 66, 66})) << order;  // 3 + 3 + 6 * 10
    EXPECT_EQ(accumulator_of(weight)->bytes_copied(), 32) << order;
  }
}

TEST(Destination, CopiesAreCounted) {
  Tensor weight = leaf({2, 2}, 1.0);
  const Tensor place = test::make_layout({2, 2}, Layout::row_major);
  accumulator_of(weight)->set_destination(place);
  const auto twice = [](FunctionContext&, const std::vector<Tensor>& in) { return std::vector<Tensor>{in[0] * 2.0}; };
  sum(apply_function("twice", {weight}, twice, twice)[0]).backward();
  EXPECT_EQ(numbers(place), (Numbers{2, 2, 2, 2}));
  EXPECT_EQ(accumulator_of(weight)->bytes_copied(), 32);
  weight.set_grad(full({2, 2}, 5.0, weight.options()));
  EXPECT_EQ(numbers(place), (Numbers{5, 5, 5, 5}));
  EXPECT_TRUE(weight.grad().is_same(place));
  EXPECT_EQ(accumulator_of(weight)->bytes_copied(), 64);
}

TEST(Destination, TakesAValidGradientAlong) {
  Tensor weight = leaf({2}, 1.0);
  sum(weight * 3.0).backward();
  const Tensor first = test::make_layout({2}, Layout::sliced);
  const auto accumulator = accumulator_of(weight);
  accumulator->set_destination(first);
  EXPECT_TRUE(accumulator->has_external_destination());
  EXPECT_EQ(numbers(first), (Numbers{3, 3}));
  const Tensor second = test::make_layout({2}, Layout::row_major);
  accumulator->set_destination(second);
  EXPECT_EQ(numbers(weight.grad()), (Numbers{3, 3}));
  EXPECT_TRUE(weight.grad().is_same(second));
  accumulator->set_destination({});
  EXPECT_FALSE(accumulator->has_external_destination());
  EXPECT_FALSE(weight.grad().shares_storage_with(second));
  EXPECT_EQ(numbers(weight.grad()), (Numbers{3, 3}));
  weight.zero_grad();
  accumulator->set_destination(second);
  EXPECT_FALSE(weight.grad().defined());
  EXPECT_THROW(accumulator->set_destination(zeros({3}, weight.options())), AutogradError);
  EXPECT_THROW(accumulator->set_destination(zeros({2})), AutogradError);
}

TEST(Destination, ZeroGradKeepsTheMemoryAndTheNextBackwardOverwrites) {
  Tensor weight = leaf({2}, 1.0);
  const Tensor place = test::make_layout({2}, Layout::row_major);
  accumulator_of(weight)->set_destination(place);
  sum(weight * 3.0).backward();
  const Tensor held = weight.grad();
  weight.zero_grad();
  EXPECT_EQ(numbers(held), (Numbers{3, 3}));
  sum(weight * 4.0).backward();
  EXPECT_EQ(numbers(held), (Numbers{4, 4}));  // a held gradient aliases the bucket
  accumulator_of(weight)->clear();
  accumulator_of(weight)->set_valid(true);
  EXPECT_EQ(numbers(weight.grad()), (Numbers{4, 4}));
}

TEST(OwnMemory, HeldGradientIsLeftToItsHolder) {
  Tensor weight = leaf({2, 2}, 1.0);
  const Tensor x = ones({3, 2}, weight.options());
  const auto step = [&](double factor) {
    weight.zero_grad();
    sum(linear(x, weight) * factor).backward();
  };
  step(1);
  const void* first = weight.grad().data();
  step(2);
  EXPECT_EQ(weight.grad().data(), first);  // nobody held it: used again
  const Tensor held = weight.grad();
  step(3);
  EXPECT_EQ(numbers(held), (Numbers{6, 6, 6, 6}));
  EXPECT_EQ(numbers(weight.grad()), (Numbers{9, 9, 9, 9}));
  const Tensor part = make_view(weight.grad(), {2}, {1}, 0);
  step(4);
  EXPECT_EQ(numbers(part), (Numbers{9, 9}));
  EXPECT_EQ(accumulator_of(weight)->bytes_copied(), 0);
}

TEST(OwnMemory, AssignedGradient) {
  Tensor weight = leaf({2}, 1.0);
  const Tensor mine = tensor<double>({7, 8});
  weight.set_grad(mine);
  EXPECT_TRUE(weight.grad().shares_storage_with(mine));
  sum(weight).backward();
  EXPECT_EQ(numbers(weight.grad()), (Numbers{8, 9}));
  weight.set_grad({});
  EXPECT_FALSE(weight.grad().defined());
  EXPECT_THROW(weight.set_grad(zeros({3}, weight.options())), AutogradError);
  EXPECT_THROW(weight.set_grad(zeros({2})), AutogradError);
  // Elements that share memory could not be added to.
  weight.set_grad(make_view(mine, {2}, {0}, 0));
  sum(weight).backward();
  EXPECT_EQ(numbers(weight.grad()), (Numbers{9, 9}));
}

TEST(OwnMemory, HasTheLeafsStrides) {
  Tensor weight = test::make_layout({2, 3}, Layout::transposed, {1, 2, 3, 4, 5, 6});
  weight.set_requires_grad();
  sum(weight * weight).backward();
  EXPECT_EQ(weight.grad().strides(), weight.strides());
  EXPECT_EQ(numbers(weight.grad()), (Numbers{2, 4, 6, 8, 10, 12}));
  Tensor sparse = test::make_layout({2, 3}, Layout::sliced, {1, 2, 3, 4, 5, 6});
  sparse.set_requires_grad();
  sum(sparse * sparse).backward();
  EXPECT_TRUE(sparse.grad().is_contiguous());
  EXPECT_EQ(numbers(sparse.grad()), (Numbers{2, 4, 6, 8, 10, 12}));
}

TEST(OwnMemory, GradientsFromElsewhereAreNotTaken) {
  // The function hands out memory that it keeps: adding to the gradient must not change it.
  Tensor weight = leaf({2}, 1.0);
  const Tensor kept = tensor<double>({1, 2});
  double foreign[2] = {3, 4};
  for (const bool own : {true, false}) {
    const auto pass = [](FunctionContext&, const std::vector<Tensor>& in) { return in; };
    const auto hand_out = [&](FunctionContext&, const std::vector<Tensor>&) {
      return std::vector<Tensor>{own ? kept : from_blob(foreign, {2}, kept.options())};
    };
    sum(apply_function("keeps", {weight}, pass, hand_out)[0]).backward();
    sum(weight * 100.0).backward();
    weight.zero_grad();
    sum(weight * 100.0).backward();
    weight.zero_grad();
  }
  EXPECT_EQ(numbers(kept), (Numbers{1, 2}));
  EXPECT_EQ(foreign[0], 3);
  EXPECT_EQ(foreign[1], 4);
}

}  // namespace
}  // namespace ddp
