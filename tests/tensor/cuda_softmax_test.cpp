// Softmax and its logarithm with their gradients on the GPU against the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ddp/autograd/functions.h"
#include "support/cuda_compare.h"
#include "tensor/loss.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the harness
using Inputs = std::vector<Tensor>;

constexpr Device kGpu = Device::cuda(0);

/// Along the last dimension: lanes that share a warp, one to 32 elements each, and rows of a block; then inner > 1.
const std::vector<std::pair<Dims, std::int64_t>> kShapes = {
    {{}, 0},           {{1}, 0},      {{7, 1}, 1},    {{33, 2}, 1},     {{64, 10}, 1},  {{5, 31}, 1},
    {{3, 128}, 1},     {{3, 129}, 1}, {{9, 1000}, 1}, {{2, 1024}, 1},   {{2, 1025}, 1}, {{3, 4099}, 1},
    {{6}, 0},          {{4, 10}, 0},  {{3, 5, 7}, 1}, {{2, 300, 3}, 1}, {{1000, 2}, 0}, {{2, 17, 257}, 1},
    {{2, 3, 4, 5}, 1}, {{0, 3}, 1},   {{3, 0}, 1},    {{4, 0, 3}, 0}};

CudaCompare dense() { return {.dtypes = {DType::float64, DType::float32, DType::bfloat16, DType::float16}}; }

TEST(CudaSoftmax, ForwardAsOnTheCpu) {
  for (const auto& [sizes, dim] : kShapes) {
    const std::vector<CudaInput> in = {{.sizes = sizes, .low = -8, .high = 8}};
    const std::int64_t d = dim;
    compare_cuda(concat("softmax along ", d), in, [d](const Inputs& x) { return raw::softmax(x[0], d); }, dense());
    compare_cuda(
        concat("log_softmax along ", d), in, [d](const Inputs& x) { return raw::log_softmax(x[0], d); }, dense());
  }
}

TEST(CudaSoftmax, GradientsAsOnTheCpu) {
  for (const auto& [sizes, dim] : kShapes) {
    // Any numbers may stand for the saved result: the gradient is a function of them.
    const std::vector<CudaInput> in = {{.sizes = sizes}, {.sizes = sizes, .low = 0, .high = 1}};
    const std::vector<CudaInput> logs = {{.sizes = sizes}, {.sizes = sizes, .low = -6, .high = -2}};
    const std::int64_t d = dim;
    compare_cuda(
        concat("softmax_grad along ", d), in, [d](const Inputs& x) { return raw::softmax_grad(x[0], x[1], d); },
        dense());
    compare_cuda(
        concat("log_softmax_grad along ", d), logs,
        [d](const Inputs& x) { return raw::log_softmax_grad(x[0], x[1], d); }, dense());
  }
}

TEST(CudaSoftmax, ThroughAutograd) {
  for (const auto& [sizes, dim] : kShapes) {
    if (sizes.product() == 0) continue;
    const std::int64_t d = dim;
    // The saved result is rounded to bfloat16 before the gradient uses it, twice over: 2^-8 of numbers up to 1,
    // times gradients up to 1 and a sum of them. So only the wide types are compared with a double reference.
    const CudaCompare wide{.dtypes = {DType::float64, DType::float32}};
    compare_cuda_grad(
        "softmax", {{.sizes = sizes, .low = -4, .high = 4}}, [d](const Inputs& x) { return softmax(x[0], d); }, wide);
    compare_cuda_grad(
        "log_softmax", {{.sizes = sizes, .low = -4, .high = 4}}, [d](const Inputs& x) { return log_softmax(x[0], d); },
        wide);
  }
}

TEST(CudaSoftmax, LargeNumbersInfinitiesAndNan) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float kNan = std::numeric_limits<float>::quiet_NaN();
  // A row each: -inf first, last and alone; all -inf; +inf; NaN behind a larger number and in front.
  const std::vector<std::vector<float>> rows = {{1000, 1000, -1000},  {-kInf, 0, -kInf},     {0, -kInf, -kInf},
                                                {-kInf, -kInf, 3},    {-kInf, -kInf, -kInf}, {1, kInf, 2},
                                                {-kInf, kInf, 2},     {5, kNan, 1},          {kNan, 5, -kInf},
                                                {-kInf, kNan, -kInf}, {3e38F, -3e38F, 0},    {kInf, kInf, kInf}};
  // In rows of every kernel: filled up with -inf, which changes nothing.
  for (const std::int64_t length : {3, 40, 200, 1500}) {
    for (const bool columns : {false, true}) {
      const auto count = static_cast<std::int64_t>(rows.size());
      std::vector<float> values(static_cast<std::size_t>(length * count), -kInf);
      for (std::int64_t r = 0; r < count; ++r) {
        for (std::int64_t i = 0; i < 3; ++i) {
          const std::int64_t at = i * (length / 3);
          values[static_cast<std::size_t>(columns ? at * count + r : r * length + at)] =
              rows[static_cast<std::size_t>(r)][static_cast<std::size_t>(i)];
        }
      }
      const Tensor host = tensor(values, columns ? Dims{length, count} : Dims{count, length});
      const std::int64_t dim = columns ? 0 : 1;
      for (const bool logarithm : {false, true}) {
        const Tensor expected = logarithm ? raw::log_softmax(host, dim) : raw::softmax(host, dim);
        const Tensor x = raw::to(host, kGpu);
        const Tensor y = logarithm ? raw::log_softmax(x, dim) : raw::softmax(x, dim);
        // Row by row, since errors count against the largest number.
        for (std::int64_t r = 0; r < count; ++r) {
          EXPECT_EQ(cuda_compare_detail::difference(raw::slice(y, 1 - dim, r, r + 1, 1),
                                                    raw::slice(expected, 1 - dim, r, r + 1, 1), 1e-5),
                    "")
              << "length " << length << (columns ? ", column " : ", row ") << r << (logarithm ? ", logarithm" : "");
        }
      }
    }
  }
}

TEST(CudaSoftmax, MoreRowsThanOneGridTakesAtATime) {
  constexpr std::int64_t kMany = 2'100'000;
  const std::vector<double> values = random_values(kMany * 3, -3, 3, 5);
  for (const std::int64_t dim : {0, 1}) {
    const Tensor x = raw::to(tensor(values, dim == 1 ? Dims{kMany, 3} : Dims{3, kMany}), DType::float32);
    EXPECT_EQ(cuda_compare_detail::difference(raw::softmax(raw::to(x, kGpu), dim), raw::softmax(x, dim), 1e-5), "");
  }
}

}  // namespace
}  // namespace ddp
