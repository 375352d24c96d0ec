#include <gtest/gtest.h>

#include "support/grad_check.h"

namespace ddp {
namespace {

using test::check_gradients;
using test::GradInput;
using Inputs = std::vector<Tensor>;

template <class F>
void check(const Dims& sizes, const F& function) {
  SCOPED_TRACE(to_string(sizes));
  check_gradients([&](const Inputs& in) { return function(in[0]); }, {GradInput{sizes}});
}

TEST(GradShape, Reshape) {
  check({2, 6}, [](const Tensor& x) { return reshape(x, {3, 4}); });
  check({2, 6}, [](const Tensor& x) { return reshape(x, {-1}); });
  check({2, 6}, [](const Tensor& x) { return reshape(x, {2, 6}); });
  check({0, 3}, [](const Tensor& x) { return reshape(x, {3, 0}); });
  check({2, 3, 4}, [](const Tensor& x) { return flatten(x); });
  check({2, 3, 4}, [](const Tensor& x) { return flatten(x, 1); });
  check({2, 3, 4}, [](const Tensor& x) { return flatten(x, 0, 1); });
  check({}, [](const Tensor& x) { return flatten(x); });
  check({2, 0, 3}, [](const Tensor& x) { return flatten(x); });
  check({2, 0, 3}, [](const Tensor& x) { return unsqueeze(x, 1); });
  check({1, 0, 3}, [](const Tensor& x) { return squeeze(x, 0); });
  check({2, 3}, [](const Tensor& x) { return unsqueeze(x, 0); });
  check({2, 3}, [](const Tensor& x) { return unsqueeze(x, 1); });
  check({2, 3}, [](const Tensor& x) { return unsqueeze(x, -1); });
  check({2, 1, 3}, [](const Tensor& x) { return squeeze(x, 1); });
  check({2, 1, 3}, [](const Tensor& x) { return squeeze(x, 0); });
}

TEST(GradShape, Reorder) {
  check({2, 3}, [](const Tensor& x) { return transpose(x, 0, 1); });
  check({2, 3, 4}, [](const Tensor& x) { return transpose(x, 0, -1); });
  check({2, 3, 4}, [](const Tensor& x) { return transpose(x, 1, 1); });
  check({2, 3, 4}, [](const Tensor& x) { return permute(x, {2, 0, 1}); });
  check({2, 3, 4}, [](const Tensor& x) { return permute(x, {-1, 0, 1}); });
  check({2, 0, 4}, [](const Tensor& x) { return permute(x, {2, 0, 1}); });
  check({2, 0, 4}, [](const Tensor& x) { return transpose(x, 0, 2); });
}

TEST(GradShape, Expand) {
  check({3, 1}, [](const Tensor& x) { return expand(x, {3, 4}); });
  check({1, 3}, [](const Tensor& x) { return expand(x, {2, 4, 3}); });
  check({}, [](const Tensor& x) { return expand(x, {2, 3}); });
  check({2, 3}, [](const Tensor& x) { return expand(x, {2, 3}); });
  check({1, 3}, [](const Tensor& x) { return expand(x, {0, 3}); });
}

TEST(GradShape, Parts) {
  check({5, 3}, [](const Tensor& x) { return slice(x, 0, 1, 4); });
  check({5, 7}, [](const Tensor& x) { return slice(x, 1, 1, 7, 2); });
  check({5, 7}, [](const Tensor& x) { return slice(x, -1, 2, 3); });
  check({5, 3}, [](const Tensor& x) { return slice(x, 0, 0, 5); });
  check({5, 3}, [](const Tensor& x) { return slice(x, 0, 2, 2); });
  check({0, 3}, [](const Tensor& x) { return slice(x, 1, 1, 3); });
  check({5, 0}, [](const Tensor& x) { return select(x, 0, 2); });
  check({5, 3}, [](const Tensor& x) { return select(x, 0, 2); });
  check({2, 5, 3}, [](const Tensor& x) { return select(x, 1, -1); });
  check({4}, [](const Tensor& x) { return select(x, 0, 3); });
  EXPECT_THROW(select(zeros({3}), 0, 3), InvalidArgument);
  EXPECT_THROW(select(zeros({3}), 0, -4), InvalidArgument);
}

TEST(GradShape, Cat) {
  const auto joined = [](std::int64_t dim) { return [dim](const Inputs& in) { return cat(in, dim); }; };
  check_gradients(joined(0), {{Dims{2, 3}}, {Dims{1, 3}}, {Dims{4, 3}}});
  check_gradients(joined(1), {{Dims{2, 3}}, {Dims{2, 1}}});
  check_gradients(joined(-1), {{Dims{2, 3}}, {Dims{2, 2}, -1.0, 1.0, false}});
  check_gradients(joined(0), {{Dims{0, 3}}, {Dims{2, 3}}});
  check_gradients(joined(0), {{Dims{0, 3}}, {Dims{0, 3}}});
  check_gradients(joined(0), {{Dims{2, 3}}});
  check_gradients([](const Inputs& in) { return cat({in[0], in[0]}); }, {{Dims{2, 3}}});
}

TEST(GradShape, Copies) {
  check({2, 3}, [](const Tensor& x) { return clone(x); });
  check({0, 3}, [](const Tensor& x) { return clone(x); });
  check({2, 3}, [](const Tensor& x) { return contiguous(x) * 2.0; });
  check({2, 3}, [](const Tensor& x) { return contiguous(transpose(x, 0, 1)); });
  check({2, 3}, [](const Tensor& x) { return to(x, DType::float64) * 1.0; });
}

TEST(GradShape, ConversionGivesGradientInTheInputsType) {
  Tensor x = tensor<float>({1, 2, 3});
  x.set_requires_grad();
  sum(to(x, DType::float64) * 3.0).backward();
  EXPECT_EQ(x.grad().dtype(), DType::float32);
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{3, 3, 3}));
  EXPECT_FALSE(to(x, DType::int64).requires_grad());
}

TEST(GradShape, ResultsNeverShareTheInputsHandle) {
  Tensor x = zeros({2, 3});
  x.set_requires_grad();
  for (const Tensor& y : {reshape(x, {2, 3}), transpose(x, 1, 1), permute(x, {0, 1}), expand(x, {2, 3}),
                          slice(x, 0, 0, 2), squeeze(x, 0), cat({x}), clone(x)}) {
    EXPECT_FALSE(y.is_same(x));
    EXPECT_FALSE(y.is_leaf());
  }
  EXPECT_TRUE(x.is_leaf());
}

}  // namespace
}  // namespace ddp
