// Convolutions on the GPU against the CPU: by cuDNN where there is one, and by columns.
#include <gtest/gtest.h>

#include "ddp/autograd/functions.h"
#include "ddp/core/precision.h"
#include "support/cuda_compare.h"
#include "tensor/conv.h"
#include "tensor/copy.h"
#include "tensor/cuda/conv_columns.h"
#include "tensor/cuda/conv_cudnn.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the harness
using Inputs = std::vector<Tensor>;

constexpr Device kGpu = Device::cuda(0);

CudaCompare dense() {
  return {.dtypes = {DType::float64, DType::float32, DType::bfloat16, DType::float16},
          .layouts = {CudaLayout::row_major, CudaLayout::offset, CudaLayout::transposed, CudaLayout::sliced}};
}

struct Case {
  Dims x;
  Dims weight;
  raw::ConvParams params = {};
};

const std::vector<Case> kCases = {
    {{2, 3, 8, 9}, {4, 3, 3, 3}},
    {{1, 1, 5, 5}, {1, 1, 1, 1}},
    {{3, 5, 7, 6}, {7, 5, 1, 1}},
    {{2, 4, 9, 9}, {6, 4, 3, 3}, {.padding = {1, 1}}},
    {{2, 4, 9, 8}, {6, 4, 3, 2}, {.stride = {2, 1}, .padding = {1, 0}}},
    {{2, 4, 11, 12}, {6, 4, 3, 3}, {.stride = {2, 3}, .padding = {2, 1}, .dilation = {2, 1}}},
    {{2, 6, 9, 9}, {4, 3, 3, 3}, {.padding = {1, 1}, .groups = 2}},
    {{3, 6, 8, 8}, {6, 1, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}, .groups = 6}},
    {{1, 16, 14, 14}, {32, 16, 5, 5}, {.padding = {2, 2}}},
    {{2, 3, 33, 31}, {8, 3, 7, 7}, {.stride = {2, 2}, .padding = {3, 3}}},
    {{4, 8, 6, 6}, {16, 8, 1, 1}, {.stride = {2, 2}}},
    {{4, 1, 28, 28}, {32, 1, 3, 3}},
    {{4, 32, 26, 26}, {64, 32, 3, 3}},
};
const std::vector<Case> kEmpty = {
    {{0, 3, 8, 9}, {4, 3, 3, 3}},
    {{2, 0, 8, 9}, {4, 0, 3, 3}},
    {{2, 3, 8, 9}, {0, 3, 3, 3}},
};

Dims out_sizes(const Case& c) {
  const auto size = [](std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                       std::int64_t dilation) { return (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1; };
  return {c.x[0], c.weight[0], size(c.x[2], c.weight[2], c.params.stride.h, c.params.padding.h, c.params.dilation.h),
          size(c.x[3], c.weight[3], c.params.stride.w, c.params.padding.w, c.params.dilation.w)};
}

std::vector<Case> all_cases() {
  std::vector<Case> cases = kCases;
  cases.insert(cases.end(), kEmpty.begin(), kEmpty.end());
  return cases;
}

TEST(CudaConv, Forward) {
  for (const Case& c : all_cases()) {
    compare_cuda(
        "conv2d", {{c.x}, {c.weight}, {{c.weight[0]}}},
        [&](const Inputs& in) {
          return std::vector<Tensor>{raw::conv2d(in[0], in[1], in[2], c.params),
                                     raw::conv2d(in[0], in[1], {}, c.params)};
        },
        dense());
  }
}

TEST(CudaConv, InputGradient) {
  for (const Case& c : all_cases()) {
    compare_cuda(
        "conv2d_input_grad", {{out_sizes(c)}, {c.weight}},
        [&](const Inputs& in) { return raw::conv2d_input_grad(in[0], in[1], c.x, c.params); }, dense());
  }
}

TEST(CudaConv, WeightGradientIntoEveryLayout) {
  for (const Case& c : all_cases()) {
    for (const bool accumulate : {false, true}) {
      compare_cuda(
          accumulate ? "out += conv2d_weight_grad" : "out = conv2d_weight_grad",
          {{out_sizes(c)}, {c.x}, {.sizes = c.weight, .written = true}},
          [&](const Inputs& in) {
            return raw::conv2d_weight_grad(in[0], in[1], c.weight, c.params, in[2], accumulate);
          },
          dense());
    }
  }
}

TEST(CudaConv, BiasGradient) {
  for (const Case& c : all_cases()) {
    for (const bool accumulate : {false, true}) {
      compare_cuda(
          "conv2d_bias_grad", {{.sizes = out_sizes(c), .low = -0.5}, {.sizes = {c.weight[0]}, .written = true}},
          [&](const Inputs& in) { return raw::conv2d_bias_grad(in[0], in[1], accumulate); }, dense());
    }
  }
}

TEST(CudaConv, AllGradientsThroughAutograd) {
  compare_cuda_grad("conv2d", {{{3, 4, 9, 9}}, {{6, 2, 3, 3}}, {{6}}},
                    [](const Inputs& in) {
                      return ddp::conv2d(in[0], in[1], in[2], {.stride = {2, 2}, .padding = {1, 1}, .groups = 2});
                    },
                    {.layouts = {CudaLayout::row_major}});
}

// The way without cuDNN is taken whatever this build has.
TEST(CudaConv, ByColumns) {
  for (const Case& c : kCases) {
    const Dims y = out_sizes(c);
    const auto on_gpu = [](const Inputs& in) { return in[0].device().is_cuda(); };
    compare_cuda(
        "columns_forward", {{c.x}, {c.weight}},
        [&](const Inputs& in) {
          if (!on_gpu(in)) return raw::conv2d(in[0], in[1], {}, c.params);
          const Tensor out = empty(y, in[0].options());
          raw::cuda::columns_forward(raw::contiguous(in[0]), raw::contiguous(in[1]), c.params, out);
          return out;
        },
        dense());
    compare_cuda(
        "columns_input_grad", {{y}, {c.weight}},
        [&](const Inputs& in) {
          if (!on_gpu(in)) return raw::conv2d_input_grad(in[0], in[1], c.x, c.params);
          const Tensor out = empty(c.x, in[0].options());
          raw::cuda::columns_input_grad(raw::contiguous(in[0]), raw::contiguous(in[1]), c.params, out);
          return out;
        },
        dense());
    compare_cuda(
        "columns_weight_grad", {{y}, {c.x}},
        [&](const Inputs& in) {
          if (!on_gpu(in)) return raw::conv2d_weight_grad(in[0], in[1], c.weight, c.params);
          const Tensor out = empty(c.weight, in[0].options());
          raw::cuda::columns_weight_grad(raw::contiguous(in[0]), raw::contiguous(in[1]), c.params, out, false);
          return out;
        },
        dense());
  }
}

// What training takes goes to cuDNN, in all directions, with strict and with rounded float32.
TEST(CudaConv, CudnnTakesWhatTrainingNeeds) {
  if (!raw::cuda::has_cudnn()) GTEST_SKIP() << "this build has no cuDNN";
  const Tensor x = ones({8, 32, 26, 26}, {DType::float32, kGpu});
  const Tensor weight = ones({64, 32, 3, 3}, x.options());
  const Tensor y = ones({8, 64, 24, 24}, x.options());
  for (const bool tf32 : {false, true}) {
    set_allow_tf32(tf32);
    EXPECT_TRUE(raw::cuda::cudnn_forward(x, weight, {}, empty(y.sizes(), x.options()))) << "tf32 " << tf32;
    EXPECT_TRUE(raw::cuda::cudnn_input_grad(y, weight, {}, empty(x.sizes(), x.options()))) << "tf32 " << tf32;
    EXPECT_TRUE(raw::cuda::cudnn_weight_grad(y, x, {}, empty(weight.sizes(), x.options()))) << "tf32 " << tf32;
  }
  set_allow_tf32(false);
}

TEST(CudaConv, Tf32IsASwitchAndOffAtFirst) {
  ASSERT_FALSE(allow_tf32());
  // Large enough that tensor cores are the obvious choice.
  const Tensor x = raw::to(tensor(random_values(4 * 256 * 30 * 30, 0, 1, 1), {4, 256, 30, 30}), DType::float32);
  const Tensor weight = raw::to(tensor(random_values(256 * 256 * 9, 0, 1, 2), {256, 256, 3, 3}), DType::float32);
  const auto on_gpu = [&] { return raw::conv2d(raw::to(x, kGpu), raw::to(weight, kGpu), {}, {}); };
  const Tensor strict = on_gpu();
  set_allow_tf32(true);
  const Tensor rounded = on_gpu();
  set_allow_tf32(false);
  const Tensor reference = raw::conv2d(raw::to(x, DType::float64), raw::to(weight, DType::float64), {}, {});
  EXPECT_EQ(cuda_compare_detail::difference(strict, reference, 1e-5), "");
  EXPECT_EQ(cuda_compare_detail::difference(rounded, reference, 1e-2), "");
  EXPECT_FALSE(equal(strict, rounded)) << "TF32 changed no bit";
  EXPECT_TRUE(equal(strict, on_gpu()));
}

TEST(CudaConv, MeasuredChoicesGiveTheSameNumbers) {
  set_autotune(true);
  const raw::ConvParams params{.padding = {1, 1}};
  compare_cuda(
      "measured conv2d", {{{4, 8, 10, 10}}, {{12, 8, 3, 3}}},
      [&](const Inputs& in) { return raw::conv2d(in[0], in[1], {}, params); }, dense());
  compare_cuda(
      "measured conv2d_input_grad", {{{4, 12, 10, 10}}, {{12, 8, 3, 3}}},
      [&](const Inputs& in) { return raw::conv2d_input_grad(in[0], in[1], {4, 8, 10, 10}, params); }, dense());
  compare_cuda(
      "measured conv2d_weight_grad", {{{4, 12, 10, 10}}, {{4, 8, 10, 10}}},
      [&](const Inputs& in) { return raw::conv2d_weight_grad(in[0], in[1], {12, 8, 3, 3}, params); }, dense());
  set_autotune(false);
}

}  // namespace
}  // namespace ddp
