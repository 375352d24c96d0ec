// Normalisations on the GPU against the CPU.
#include "tensor/norm.h"

#include <gtest/gtest.h>

#include "ddp/autograd/functions.h"
#include "support/cuda_compare.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the harness
using Inputs = std::vector<Tensor>;

// Repeated numbers have no variance, so that gradients are rounding errors enlarged.
const std::vector<CudaLayout> kLayouts = {CudaLayout::row_major, CudaLayout::offset, CudaLayout::transposed,
                                          CudaLayout::sliced};
CudaCompare floats() {
  return {.dtypes = {DType::float64, DType::float32, DType::bfloat16, DType::float16}, .layouts = kLayouts};
}
CudaCompare large() {
  return {.dtypes = {DType::float64, DType::float32, DType::bfloat16}, .layouts = {CudaLayout::row_major}};
}

// Planes in packs and not, planes of one element, channels in several pieces, more channels than a block's columns.
const Dims kSmall[] = {{4, 3, 4, 8}, {5, 7, 3, 3}, {6, 3, 1, 1}, {33, 40}, {3, 2, 5}, {2, 1, 16, 16}, {64, 5, 2, 2}};
const Dims kLarge[] = {{16, 6, 56, 56}, {9, 33, 27, 13}, {20000, 3}, {3000, 70}, {2, 600, 7, 7}};

Dims channels_of(const Dims& x) { return {x[1]}; }

/// x, weight and bias, gradient.
std::vector<CudaInput> inputs_of(const Dims& x, const Dims& parameters) {
  return {{.sizes = x, .low = -1, .high = 3},
          {.sizes = parameters, .low = 0.5, .high = 2},
          {.sizes = parameters},
          {.sizes = x}};
}

Inputs train(const Inputs& in) {
  Tensor unbiased;
  const raw::NormResult y = raw::batch_norm_train(in[0], in[1], in[2], 1e-5, &unbiased);
  const raw::NormGrads g = raw::batch_norm_train_grad(in[3], in[0], in[1], y.mean, y.invstd);
  return {y.y, y.mean, y.invstd, unbiased, g.x, g.weight, g.bias};
}

TEST(CudaBatchNorm, Training) {
  for (const Dims& x : kSmall) compare_cuda("batch norm", inputs_of(x, channels_of(x)), train, floats());
  for (const Dims& x : kLarge) compare_cuda("batch norm", inputs_of(x, channels_of(x)), train, large());
}

TEST(CudaBatchNorm, TrainingWithoutParameters) {
  for (const Dims& x : {Dims{4, 3, 4, 8}, Dims{33, 40}}) {
    compare_cuda(
        "batch norm, bare", {{.sizes = x}, {.sizes = x}},
        [](const Inputs& in) {
          const raw::NormResult y = raw::batch_norm_train(in[0], {}, {}, 1e-5, nullptr);
          const raw::NormGrads g = raw::batch_norm_train_grad(in[1], in[0], {}, y.mean, y.invstd);
          return Inputs{y.y, y.mean, y.invstd, g.x, g.bias};
        },
        floats());
  }
}

TEST(CudaBatchNorm, EqualNumbersHaveNoVariance) {
  for (const Dims& x : {Dims{16, 3, 20, 20}, Dims{900, 4}, Dims{7, 3, 3, 3}}) {
    for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16}) {
      const Tensor numbers = full(x, 0.3, {dtype, Device::cuda(0)});
      Tensor unbiased;
      const raw::NormResult y = raw::batch_norm_train(numbers, {}, {}, 1e-5, &unbiased);
      EXPECT_EQ(unbiased.to_vector<double>(), std::vector<double>(static_cast<std::size_t>(x[1]), 0));
      EXPECT_EQ(y.y.to_vector<double>(), std::vector<double>(static_cast<std::size_t>(x.product()), 0));
      const raw::NormResult rows = raw::layer_norm(numbers, {x[x.size() - 1]}, {}, {}, 1e-5);
      EXPECT_EQ(rows.y.to_vector<double>(), std::vector<double>(static_cast<std::size_t>(x.product()), 0));
    }
  }
}

TEST(CudaBatchNorm, AMeanFarFromZero) {
  // The spread is a thousandth of the mean: sums of squares would lose it. Rounding of x itself costs 2^-24 * 1000
  // of the spread, 6e-5; what is compared are the results from the same rounded x.
  for (const Dims& x : {Dims{16, 3, 20, 20}, Dims{900, 4}}) {
    compare_cuda("statistics", {{.sizes = x, .low = 999.5, .high = 1000.5}},
                 [](const Inputs& in) {
                   const raw::NormResult y = raw::batch_norm_train(in[0], {}, {}, 0, nullptr);
                   return Inputs{y.mean, y.invstd};
                 },
                 {.dtypes = {DType::float64, DType::float32}, .layouts = kLayouts});
  }
}

TEST(CudaBatchNorm, Evaluation) {
  for (const Dims& x : {Dims{4, 3, 4, 8}, Dims{5, 7, 3, 3}, Dims{33, 40}, Dims{16, 6, 56, 56}, Dims{0, 3, 2, 2}}) {
    std::vector<CudaInput> inputs = inputs_of(x, channels_of(x));
    inputs.push_back({.sizes = channels_of(x)});                         // mean
    inputs.push_back({.sizes = channels_of(x), .low = 0.2, .high = 2});  // variance
    compare_cuda(
        "batch norm, evaluation", inputs,
        [](const Inputs& in) {
          const raw::NormGrads g = raw::batch_norm_eval_grad(in[3], in[0], in[1], in[4], in[5], 1e-5);
          return Inputs{raw::batch_norm_eval(in[0], in[1], in[2], in[4], in[5], 1e-5), g.x, g.weight, g.bias};
        },
        x.product() > 10000 ? large() : floats());
  }
}

TEST(CudaBatchNorm, GradientsAreWrittenAndAdded) {
  const Dims x = {4, 3, 4, 8};
  std::vector<CudaInput> inputs = inputs_of(x, {3});
  inputs.push_back({.sizes = {3}, .written = true});
  inputs.push_back({.sizes = {3}, .written = true});
  for (const bool accumulate : {false, true}) {
    compare_cuda(
        "batch norm into", inputs,
        [&](const Inputs& in) {
          const raw::NormResult y = raw::batch_norm_train(in[0], in[1], in[2], 1e-5, nullptr);
          const raw::NormGrads g = raw::batch_norm_train_grad(in[3], in[0], in[1], y.mean, y.invstd,
                                                              {in[4], accumulate}, {in[5], accumulate});
          return Inputs{g.x, in[4], in[5]};
        },
        floats());
  }
}

Inputs layer(const Inputs& in) {
  const raw::NormResult y = raw::layer_norm(in[0], in[1].sizes(), in[1], in[2], 1e-5);
  const raw::NormGrads g = raw::layer_norm_grad(in[3], in[0], in[1].sizes(), in[1], y.mean, y.invstd);
  return {y.y, y.mean, y.invstd, g.x, g.weight, g.bias};
}

TEST(CudaLayerNorm, RowsOfAllLengths) {
  const struct {
    Dims x, normalized;
    bool is_large;
  } cases[] = {{{5, 3, 8}, {8}, false},   {{7, 13}, {13}, false},    {{4, 5, 6}, {5, 6}, false},
               {{5, 3}, {3}, false},      {{1, 300}, {300}, false},  {{37, 1024}, {1024}, true},
               {{9, 5000}, {5000}, true}, {{6, 2999}, {2999}, true}, {{5000, 40}, {40}, true},
               {{300, 768}, {768}, true}};
  for (const auto& c : cases) {
    compare_cuda("layer norm", inputs_of(c.x, c.normalized), layer, c.is_large ? large() : floats());
  }
}

TEST(CudaLayerNorm, WithoutParametersAndElements) {
  compare_cuda(
      "layer norm, bare", {{.sizes = {6, 5, 8}}, {.sizes = {6, 5, 8}}},
      [](const Inputs& in) {
        const raw::NormResult y = raw::layer_norm(in[0], {8}, {}, {}, 1e-5);
        const raw::NormGrads g = raw::layer_norm_grad(in[1], in[0], {8}, {}, y.mean, y.invstd);
        return Inputs{y.y, g.x, g.bias};
      },
      floats());
  compare_cuda("layer norm of nothing", inputs_of({0, 8}, {8}), layer, floats());
}

TEST(CudaNorm, GradientsThroughTheGraph) {
  const auto batch = [](const auto& in) {
    Tensor mean = zeros({3}, in[0].options());
    Tensor variance = ones({3}, in[0].options());
    return batch_norm(in[0], mean, variance, in[1], in[2], true);
  };
  compare_cuda_grad("batch_norm", {{.sizes = {4, 3, 5, 6}}, {.sizes = {3}}, {.sizes = {3}}}, batch,
                    {.layouts = kLayouts});
  compare_cuda_grad("layer_norm", {{.sizes = {4, 3, 8}}, {.sizes = {8}}, {.sizes = {8}}},
                    [](const auto& in) { return layer_norm(in[0], {8}, in[1], in[2]); }, {.layouts = kLayouts});
}

}  // namespace
}  // namespace ddp
