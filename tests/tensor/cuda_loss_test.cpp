// Losses, their gradients and the count of right answers on the GPU against the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/observer.h"
#include "ddp/autograd/functions.h"
#include "support/cuda_compare.h"
#include "tensor/loss.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the harness
using Inputs = std::vector<Tensor>;
using raw::Reduction;

constexpr Device kGpu = Device::cuda(0);
const std::vector<DType> kDense = {DType::float64, DType::float32, DType::bfloat16, DType::float16};

/// Rows and classes: one block with few and with many threads, several blocks, every way a row is shared out.
const std::vector<std::pair<std::int64_t, std::int64_t>> kShapes = {{1, 1},     {64, 10},  {5, 128},  {7, 129},
                                                                    {33, 1000}, {3, 1025}, {1, 5000}, {9, 3001},
                                                                    {2000, 10}, {3000, 3}, {400, 65}};

CudaInput labels(std::int64_t n, std::int64_t classes) {
  return {.sizes = {n}, .low = 0, .high = static_cast<double>(classes), .dtype = DType::int64};
}

TEST(CudaCrossEntropy, LossAndLogProbabilitiesAsOnTheCpu) {
  for (const auto& [n, c] : kShapes) {
    for (const double smoothing : {0.0, 0.1, 1.0}) {
      for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
        const double e = smoothing;
        // bfloat16 and float16: log-probabilities are stored rounded and the loss is made of those.
        compare_cuda(concat("cross_entropy of ", n, " x ", c, ", smoothing ", e),
                     {{.sizes = {n, c}, .low = -4, .high = 4}, labels(n, c)},
                     [e, reduction](const Inputs& in) {
                       const auto result = raw::cross_entropy(in[0], in[1], reduction, e);
                       return std::vector<Tensor>{result.loss, result.log_probs};
                     },
                     {.dtypes = kDense, .layouts = {CudaLayout::row_major, CudaLayout::offset, CudaLayout::sliced}});
      }
    }
  }
}

TEST(CudaCrossEntropy, GradientAsOnTheCpu) {
  for (const auto& [n, c] : kShapes) {
    for (const double smoothing : {0.0, 0.1, 1.0}) {
      for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
        const double e = smoothing;
        // The gradient may cancel to nothing (one class, or smoothing 1 at equal logits), so that an error relative
        // to it means nothing: the log-probabilities given are far from the target distribution.
        compare_cuda(
            concat("cross_entropy_grad of ", n, " x ", c, ", smoothing ", e),
            {{.sizes = {}, .low = 1, .high = 3}, {.sizes = {n, c}, .low = -3, .high = -1}, labels(n, c)},
            [e, reduction](const Inputs& in) { return raw::cross_entropy_grad(in[0], in[1], in[2], reduction, e); },
            {.dtypes = kDense, .layouts = {CudaLayout::row_major, CudaLayout::offset, CudaLayout::sliced}});
      }
    }
  }
}

TEST(CudaCrossEntropy, ThroughAutograd) {
  for (const auto& [n, c] : kShapes) {
    if (c == 1) continue;  // no gradient but rounding
    for (const double smoothing : {0.0, 0.1}) {
      const double e = smoothing;
      compare_cuda_grad(
          concat("cross_entropy of ", n, " x ", c, ", smoothing ", e),
          {{.sizes = {n, c}, .low = -4, .high = 4}, labels(n, c)},
          [e](const Inputs& in) { return cross_entropy(in[0], in[1], {.label_smoothing = e}); },
          {.dtypes = {DType::float64, DType::float32}, .layouts = {CudaLayout::row_major, CudaLayout::transposed}});
    }
  }
}

TEST(CudaCrossEntropy, NoRows) {
  const Tensor none = zeros({0}, {DType::int64, kGpu});
  const Tensor logits = zeros({0, 3}, {DType::float32, kGpu});
  const auto mean = raw::cross_entropy(logits, none, Reduction::mean, 0);
  EXPECT_TRUE(std::isnan(mean.loss.item<float>()));
  EXPECT_EQ(mean.log_probs.sizes(), (Dims{0, 3}));
  EXPECT_EQ(raw::cross_entropy(logits, none, Reduction::sum, 0).loss.item<float>(), 0);
  const Tensor one = ones({}, {DType::float32, kGpu});
  EXPECT_EQ(raw::cross_entropy_grad(one, mean.log_probs, none, Reduction::mean, 0).sizes(), (Dims{0, 3}));
}

TEST(CudaCrossEntropy, ALabelOutOfRangeMakesTheLossNan) {
  for (const std::int64_t c : {3, 200, 2000}) {
    for (const std::int64_t label :
         {std::int64_t{-1}, c, std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
      for (const double smoothing : {0.0, 0.2}) {
        const Tensor logits = raw::to(tensor(random_values(3 * c, -2, 2, 3), {3, c}), DType::float32);
        const Tensor good = tensor<std::int64_t>({0, c - 1, 1});
        const Tensor bad = tensor<std::int64_t>({0, label, 1});
        const auto right = raw::cross_entropy(raw::to(logits, kGpu), raw::to(good, kGpu), Reduction::mean, smoothing);
        const auto wrong = raw::cross_entropy(raw::to(logits, kGpu), raw::to(bad, kGpu), Reduction::mean, smoothing);
        EXPECT_TRUE(std::isfinite(right.loss.item<float>())) << c;
        EXPECT_TRUE(std::isnan(wrong.loss.item<float>())) << c << " " << label;
        EXPECT_TRUE(equal(right.log_probs, wrong.log_probs));
        const Tensor one = ones({}, {DType::float32, kGpu});
        const auto expected =
            raw::cross_entropy_grad(one, right.log_probs, raw::to(good, kGpu), Reduction::mean, smoothing)
                .to_vector<float>();
        const auto got = raw::cross_entropy_grad(one, right.log_probs, raw::to(bad, kGpu), Reduction::mean, smoothing)
                             .to_vector<float>();
        for (std::size_t i = 0; i < got.size(); ++i) {
          const bool of_the_row = i / static_cast<std::size_t>(c) == 1;
          ASSERT_TRUE(of_the_row ? std::isnan(got[i]) : got[i] == expected[i]) << c << " " << label << " at " << i;
        }
      }
    }
  }
}

TEST(CudaCrossEntropy, InfiniteLogits) {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor logits = tensor<float>({0, -inf, 1, -inf, -inf, 2}, {2, 3});
  const Tensor target = tensor<std::int64_t>({0, 2});
  const Tensor impossible = tensor<std::int64_t>({1, 2});
  for (const Tensor& labels_of : {target, impossible}) {
    for (const double smoothing : {0.0, 0.5}) {
      const auto cpu = raw::cross_entropy(logits, labels_of, Reduction::sum, smoothing);
      const auto gpu = raw::cross_entropy(raw::to(logits, kGpu), raw::to(labels_of, kGpu), Reduction::sum, smoothing);
      EXPECT_EQ(cuda_compare_detail::difference(gpu.loss, cpu.loss, 1e-5), "");
      EXPECT_EQ(cuda_compare_detail::difference(gpu.log_probs, cpu.log_probs, 1e-5), "");
    }
  }
}

int launches = 0;

TEST(CudaCrossEntropy, AStepIsOneLaunchForwardAndOneBack) {
  const Tensor logits = zeros({512, 10}, {DType::float32, kGpu});
  const Tensor target = zeros({512}, {DType::int64, kGpu});
  const Tensor one = ones({}, {DType::float32, kGpu});
  static core::Observer counting{};
  counting.launch = [](const char*, Device) { ++launches; };
  const core::Observer* before = core::observer();
  core::set_observer(&counting);
  launches = 0;
  const auto result = raw::cross_entropy(logits, target, Reduction::mean, 0);
  const int forward = launches;
  const Tensor grad = raw::cross_entropy_grad(one, result.log_probs, target, Reduction::mean, 0);
  const int both = launches;
  core::set_observer(before);
  EXPECT_EQ(forward, 1);
  EXPECT_EQ(both, 2);
  EXPECT_NEAR(result.loss.item<float>(), std::log(10.0), 1e-5);
}

TEST(CudaMseLoss, AsOnTheCpu) {
  for (const Dims& sizes : {Dims{}, Dims{1}, Dims{5, 33}, Dims{4, 1024}, Dims{8193}, Dims{7, 30011}, Dims{0, 4}}) {
    for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
      // The sum is beyond float16.
      std::vector<DType> dtypes = {DType::float64, DType::float32, DType::bfloat16};
      if (reduction == Reduction::mean) dtypes.push_back(DType::float16);
      compare_cuda("mse_loss", {{.sizes = sizes}, {.sizes = sizes}},
                   [reduction](const Inputs& in) { return raw::mse_loss(in[0], in[1], reduction); },
                   {.dtypes = dtypes, .layouts = {CudaLayout::row_major, CudaLayout::offset, CudaLayout::mixed}});
      // 2 / n underflows to float16's steps of 2^-24 for the larger sizes.
      compare_cuda("mse_loss_grad", {{.sizes = {}, .low = 1, .high = 2}, {.sizes = sizes}, {.sizes = sizes}},
                   [reduction](const Inputs& in) { return raw::mse_loss_grad(in[0], in[1], in[2], reduction); },
                   {.layouts = {CudaLayout::row_major, CudaLayout::offset, CudaLayout::mixed}});
    }
  }
  compare_cuda_grad("mse_loss", {{{5, 33}}, {{5, 33}}}, [](const Inputs& in) { return mse_loss(in[0], in[1]); },
                    {.dtypes = {DType::float64, DType::float32}});
}

TEST(CudaCountCorrect, AsOnTheCpu) {
  for (const auto& [n, c] : kShapes) {
    // Whole numbers, so that rows have several largest elements: the first one counts.
    compare_cuda(concat("count_correct of ", n, " x ", c),
                 {{.sizes = {n, c}, .low = 0, .high = 4}, labels(n, std::min<std::int64_t>(c, 5))},
                 [](const Inputs& in) {
                   const Tensor whole = raw::to(raw::to(in[0], DType::int32), in[0].dtype());
                   return raw::count_correct(whole, in[1]);
                 },
                 {.dtypes = kDense, .wide = false});
    compare_cuda(concat("count_correct with NaN of ", n, " x ", c),
                 {{.sizes = {n, c}, .specials = true}, labels(n, std::min<std::int64_t>(c, 12))},
                 [](const Inputs& in) { return raw::count_correct(in[0], in[1]); }, {.dtypes = kDense, .wide = false});
  }
  compare_cuda("count_correct of nothing", {{{0, 3}}, labels(0, 3)},
               [](const Inputs& in) { return raw::count_correct(in[0], in[1]); });
  // No class: no label is right.
  EXPECT_EQ(
      raw::count_correct(zeros({2, 0}, {DType::float32, kGpu}), zeros({2}, {DType::int64, kGpu})).item<std::int64_t>(),
      0);
  // A label out of range is never right.
  EXPECT_EQ(raw::count_correct(zeros({2, 3}, {DType::float32, kGpu}), raw::to(tensor<std::int64_t>({-1, 3}), kGpu))
                .item<std::int64_t>(),
            0);
}

}  // namespace
}  // namespace ddp
