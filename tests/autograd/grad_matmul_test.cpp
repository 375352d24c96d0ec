#include <gtest/gtest.h>

#include "support/grad_check.h"

namespace ddp {
namespace {

using test::check_gradients;
using test::GradInput;
using Inputs = std::vector<Tensor>;

TEST(GradMatmul, AllRanks) {
  const std::vector<std::pair<Dims, Dims>> cases = {
      {{3, 4}, {4, 5}},          {{4}, {4}},       {{3, 4}, {4}},          {{4}, {4, 5}},       {{2, 3, 4}, {4, 5}},
      {{2, 3, 4}, {4}},          {{4}, {2, 4, 5}}, {{2, 3, 4}, {2, 4, 5}}, {{3, 4}, {2, 4, 5}}, {{1, 3, 4}, {2, 4, 5}},
      {{2, 1, 3, 4}, {5, 4, 2}}, {{1, 1}, {1, 1}}, {{0, 4}, {4, 5}},       {{3, 0}, {0, 5}},    {{3, 4}, {4, 0}},
      {{0, 3, 4}, {4, 5}},       {{0}, {0}}};
  for (const auto& [a, b] : cases) {
    SCOPED_TRACE(to_string(a) + " by " + to_string(b));
    const auto product = [](const Inputs& in) { return matmul(in[0], in[1]); };
    check_gradients(product, {GradInput{a}, GradInput{b}});
    check_gradients(product, {GradInput{a, -1.0, 1.0, false}, GradInput{b}});
    check_gradients(product, {GradInput{a}, GradInput{b, -1.0, 1.0, false}});
    if (HasFatalFailure()) return;
  }
}

TEST(GradMatmul, OneTensorOnBothSides) {
  check_gradients([](const Inputs& in) { return matmul(in[0], in[0]); }, {{Dims{3, 3}}});
  check_gradients([](const Inputs& in) { return matmul(in[0], transpose(in[0], 0, 1)); }, {{Dims{2, 3}}});
}

TEST(GradLinear, WithAndWithoutBias) {
  for (const Dims& x : {Dims{5, 4}, Dims{4}, Dims{2, 3, 4}, Dims{0, 4}, Dims{1, 4}}) {
    SCOPED_TRACE(to_string(x));
    check_gradients([](const Inputs& in) { return linear(in[0], in[1], in[2]); }, {{x}, {Dims{3, 4}}, {Dims{3}}});
    check_gradients([](const Inputs& in) { return linear(in[0], in[1]); }, {{x}, {Dims{3, 4}}});
    check_gradients([](const Inputs& in) { return linear(in[0], in[1], in[2]); },
                    {{x, -1.0, 1.0, false}, {Dims{3, 4}}, {Dims{3}}});
    check_gradients([](const Inputs& in) { return linear(in[0], in[1], in[2]); },
                    {{x}, {Dims{3, 4}, -1.0, 1.0, false}, {Dims{3}}});
    if (HasFatalFailure()) return;
  }
}

TEST(GradLinear, SharedWeight) {
  check_gradients([](const Inputs& in) { return linear(linear(in[0], in[1], in[2]), in[1], in[2]); },
                  {{Dims{5, 3}}, {Dims{3, 3}}, {Dims{3}}});
}

}  // namespace
}  // namespace ddp
