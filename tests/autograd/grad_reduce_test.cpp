#include <gtest/gtest.h>

#include "support/grad_check.h"

namespace ddp {
namespace {

using test::check_gradients;
using test::GradInput;
using Inputs = std::vector<Tensor>;

TEST(GradReduce, SumAndMeanOverAll) {
  for (const Dims& sizes : {Dims{3, 4}, Dims{}, Dims{2, 3, 4}}) {
    check_gradients([](const Inputs& in) { return sum(in[0]); }, {{sizes}});
    check_gradients([](const Inputs& in) { return mean(in[0]); }, {{sizes}});
  }
  check_gradients([](const Inputs& in) { return sum(in[0]); }, {{Dims{0, 4}}});
}

TEST(GradReduce, SumAndMeanOverSome) {
  for (const bool keep : {false, true}) {
    for (const Dims& dims : {Dims{0}, Dims{-1}, Dims{1}, Dims{0, 2}, Dims{2, 1}, Dims{0, 1, 2}}) {
      SCOPED_TRACE(to_string(dims));
      check_gradients([&](const Inputs& in) { return sum(in[0], dims, keep); }, {{Dims{2, 3, 4}}});
      check_gradients([&](const Inputs& in) { return mean(in[0], dims, keep); }, {{Dims{2, 3, 4}}});
    }
    check_gradients([&](const Inputs& in) { return sum(in[0], {0}, keep); }, {{Dims{0, 3}}});
    check_gradients([&](const Inputs& in) { return sum(in[0], {1}, keep); }, {{Dims{0, 3}}});
    check_gradients([&](const Inputs& in) { return mean(in[0], {1}, keep); }, {{Dims{0, 3}}});
  }
}

TEST(GradReduce, Max) {
  for (const bool keep : {false, true}) {
    for (const std::int64_t dim : {0, 1, 2, -1}) {
      check_gradients([&](const Inputs& in) { return max(in[0], dim, keep).values; }, {{Dims{2, 3, 4}}});
    }
    check_gradients([&](const Inputs& in) { return max(in[0], 1, keep).values; }, {{Dims{0, 3}}});
  }
  check_gradients([](const Inputs& in) { return max(in[0]); }, {{Dims{3, 4}}});
  check_gradients([](const Inputs& in) { return max(in[0]); }, {{Dims{}}});
}

TEST(GradReduce, MaxIndicesAreNotDifferentiable) {
  Tensor x = tensor<double>({3, 1, 2});
  x.set_requires_grad();
  const MaxValues found = max(x, 0);
  EXPECT_TRUE(found.values.requires_grad());
  EXPECT_FALSE(found.indices.requires_grad());
  EXPECT_EQ(found.indices.item<std::int64_t>(), 0);
}

TEST(GradReduce, MeanOfHalvesBeyondTheRangeOfTheirSum) {
  const Tensor x = full({70000}, 2.0, {DType::float16, Device::cpu()});
  EXPECT_EQ(mean(x).to_vector<float>(), std::vector<float>{2.0F});
}

TEST(GradReduce, WrongDimensions) {
  EXPECT_THROW(sum(zeros({2, 3}), {0, 0}), InvalidArgument);
  EXPECT_THROW(sum(zeros({2, 3}), {2}), InvalidArgument);
  EXPECT_THROW(mean(zeros({2}, {DType::int64, Device::cpu()})), InvalidArgument);
}

}  // namespace
}  // namespace ddp
