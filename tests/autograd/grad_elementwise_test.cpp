#include <gtest/gtest.h>

#include "support/grad_check.h"

namespace ddp {
namespace {

using test::check_gradients;
using test::GradInput;
using Inputs = std::vector<Tensor>;

/// Pairs of sizes that broadcast: equal, each side smaller, both, 0-d, and empty.
const std::vector<std::pair<Dims, Dims>>& broadcasts() {
  static const std::vector<std::pair<Dims, Dims>> all = {
      {{3, 4}, {3, 4}}, {{3, 4}, {4}},       {{4}, {3, 4}},    {{3, 1}, {1, 4}}, {{2, 3, 4}, {3, 1}},
      {{}, {2, 3}},     {{2, 3}, {}},        {{}, {}},         {{0, 3}, {3}},    {{0, 3}, {1, 3}},
      {{2, 0}, {2, 1}}, {{2, 1, 3}, {4, 1}}, {{1, 1}, {3, 2}}, {{0}, {0}}};
  return all;
}

template <class F>
void check_binary(const F& function, double low = -1.0, double high = 1.0) {
  for (const auto& [a, b] : broadcasts()) {
    SCOPED_TRACE(to_string(a) + " with " + to_string(b));
    check_gradients([&](const Inputs& in) { return function(in[0], in[1]); },
                    {GradInput{a, -1.0, 1.0}, GradInput{b, low, high}});
    check_gradients([&](const Inputs& in) { return function(in[0], in[1]); },
                    {GradInput{a, -1.0, 1.0, false}, GradInput{b, low, high}});
    check_gradients([&](const Inputs& in) { return function(in[0], in[1]); },
                    {GradInput{a, -1.0, 1.0}, GradInput{b, low, high, false}});
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(GradArithmetic, Add) {
  check_binary([](const Tensor& a, const Tensor& b) { return a + b; });
}
TEST(GradArithmetic, Sub) {
  check_binary([](const Tensor& a, const Tensor& b) { return a - b; });
}
TEST(GradArithmetic, Mul) {
  check_binary([](const Tensor& a, const Tensor& b) { return a * b; });
}
TEST(GradArithmetic, Div) {
  check_binary([](const Tensor& a, const Tensor& b) { return a / b; }, 0.5, 1.5);
}

template <class F>
void check_unary(const F& function, double low = -1.0, double high = 1.0) {
  for (const Dims& sizes : {Dims{3, 4}, Dims{}, Dims{2, 1, 5}, Dims{0, 2}, Dims{37}}) {
    SCOPED_TRACE(to_string(sizes));
    check_gradients([&](const Inputs& in) { return function(in[0]); }, {GradInput{sizes, low, high}});
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(GradArithmetic, Scalars) {
  check_unary([](const Tensor& x) { return x + 2.5; });
  check_unary([](const Tensor& x) { return x - 2.5; });
  check_unary([](const Tensor& x) { return x * 2.5; });
  check_unary([](const Tensor& x) { return x / 2.5; });
  check_unary([](const Tensor& x) { return 2.5 + x; });
  check_unary([](const Tensor& x) { return 2.5 - x; });
  check_unary([](const Tensor& x) { return 2.5 * x; });
  check_unary([](const Tensor& x) { return 2.5 / x; }, 0.5, 1.5);
  check_unary([](const Tensor& x) { return -x; });
}

TEST(GradActivation, Relu) {
  // Away from the kink, where no difference can be taken.
  check_unary([](const Tensor& x) { return relu(x); }, 0.1, 1.0);
  check_unary([](const Tensor& x) { return relu(x); }, -1.0, -0.1);
  check_unary([](const Tensor& x) { return relu(x); });
}
TEST(GradActivation, Gelu) {
  check_unary([](const Tensor& x) { return gelu(x); }, -3.0, 3.0);
}
TEST(GradActivation, Sigmoid) {
  check_unary([](const Tensor& x) { return sigmoid(x); }, -3.0, 3.0);
}
TEST(GradActivation, Tanh) {
  check_unary([](const Tensor& x) { return tanh(x); }, -3.0, 3.0);
}
TEST(GradActivation, Exp) {
  check_unary([](const Tensor& x) { return exp(x); });
}
TEST(GradActivation, Log) {
  check_unary([](const Tensor& x) { return log(x); }, 0.5, 2.0);
}
TEST(GradActivation, Sqrt) {
  check_unary([](const Tensor& x) { return sqrt(x); }, 0.5, 2.0);
}

}  // namespace
}  // namespace ddp
