#include <gtest/gtest.h>

#include "support/grad_check.h"

namespace ddp {
namespace {

using test::check_gradients;
using test::GradInput;
using Inputs = std::vector<Tensor>;

void check_conv(const Dims& x, const Dims& weight, const Conv2dOptions& options) {
  SCOPED_TRACE(to_string(x) + " with " + to_string(weight));
  check_gradients([&](const Inputs& in) { return conv2d(in[0], in[1], in[2], options); },
                  {{x}, {weight}, {Dims{weight[0]}}});
}

TEST(GradConv2d, Plain) { check_conv({2, 2, 4, 5}, {3, 2, 3, 3}, {}); }
TEST(GradConv2d, PointWise) { check_conv({2, 3, 3, 2}, {2, 3, 1, 1}, {}); }
TEST(GradConv2d, PaddingAndStride) { check_conv({1, 2, 5, 4}, {2, 2, 3, 2}, {.stride = {2, 1}, .padding = {1, 2}}); }
TEST(GradConv2d, Dilation) { check_conv({1, 1, 6, 5}, {2, 1, 3, 2}, {.padding = 1, .dilation = {2, 3}}); }
TEST(GradConv2d, Groups) { check_conv({2, 4, 3, 3}, {6, 2, 2, 2}, {.padding = 1, .groups = 2}); }
TEST(GradConv2d, Depthwise) { check_conv({1, 3, 4, 4}, {3, 1, 3, 3}, {.stride = 2, .padding = 1, .groups = 3}); }
TEST(GradConv2d, NoSamples) { check_conv({0, 2, 4, 4}, {3, 2, 3, 3}, {}); }
TEST(GradConv2d, PixelsThatNoWindowReaches) { check_conv({1, 1, 5, 6}, {1, 1, 2, 2}, {.stride = 3}); }

TEST(GradConv2d, WithoutBiasAndWithFixedInputs) {
  check_gradients([](const Inputs& in) { return conv2d(in[0], in[1]); }, {{Dims{2, 2, 4, 4}}, {Dims{3, 2, 3, 3}}});
  check_gradients([](const Inputs& in) { return conv2d(in[0], in[1], in[2]); },
                  {{Dims{2, 2, 4, 4}, -1.0, 1.0, false}, {Dims{3, 2, 3, 3}}, {Dims{3}}});
  check_gradients([](const Inputs& in) { return conv2d(in[0], in[1], in[2]); },
                  {{Dims{2, 2, 4, 4}}, {Dims{3, 2, 3, 3}, -1.0, 1.0, false}, {Dims{3}}});
}

TEST(GradPool2d, Max) {
  check_gradients([](const Inputs& in) { return max_pool2d(in[0], 2); }, {{Dims{2, 2, 4, 6}}});
  check_gradients([](const Inputs& in) { return max_pool2d(in[0], {3, 2}, {.stride = {1, 2}, .padding = 1}); },
                  {{Dims{1, 2, 4, 5}}});
  check_gradients([](const Inputs& in) { return max_pool2d(in[0], 2); }, {{Dims{0, 2, 4, 4}}});
}

TEST(GradPool2d, Average) {
  check_gradients([](const Inputs& in) { return avg_pool2d(in[0], 2); }, {{Dims{2, 2, 4, 6}}});
  for (const bool count : {true, false}) {
    check_gradients(
        [&](const Inputs& in) {
          return avg_pool2d(in[0], {3, 2}, {.stride = {1, 2}, .padding = 1, .count_include_pad = count});
        },
        {{Dims{1, 2, 4, 5}}});
  }
  check_gradients([](const Inputs& in) { return avg_pool2d(in[0], 2); }, {{Dims{0, 2, 4, 4}}});
}

TEST(GradPool2d, AdaptiveAverage) {
  check_gradients([](const Inputs& in) { return adaptive_avg_pool2d(in[0], 1); }, {{Dims{2, 3, 4, 5}}});
  check_gradients([](const Inputs& in) { return adaptive_avg_pool2d(in[0], {3, 2}); }, {{Dims{1, 2, 5, 7}}});
  check_gradients([](const Inputs& in) { return adaptive_avg_pool2d(in[0], {3, 2}); }, {{Dims{0, 2, 5, 7}}});
}

}  // namespace
}  // namespace ddp
