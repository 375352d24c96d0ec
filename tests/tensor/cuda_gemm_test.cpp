// Matrix products on the GPU against the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "core/observer.h"
#include "ddp/autograd/functions.h"
#include "ddp/core/precision.h"
#include "support/cuda_compare.h"
#include "support/expect_error.h"
#include "tensor/copy.h"
#include "tensor/gemm.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the harness
using Inputs = std::vector<Tensor>;

constexpr Device kGpu = Device::cuda(0);
CudaCompare floats() { return {.dtypes = {DType::float64, DType::float32, DType::bfloat16, DType::float16}}; }

/// Launches by name while it lives.
class Launches {
 public:
  Launches() : previous_(core::observer()) {
    counts().clear();
    static const core::Observer observer{.launch = [](const char* what, Device) { ++counts()[what]; }};
    core::set_observer(&observer);
  }
  ~Launches() { core::set_observer(previous_); }
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;
  std::map<std::string, int> seen() const { return counts(); }

 private:
  static std::map<std::string, int>& counts() {
    static std::map<std::string, int> all;
    return all;
  }
  const core::Observer* previous_;
};
using Counts = std::map<std::string, int>;

struct Size {
  std::int64_t m, n, k;
};
const std::vector<Size> kSizes = {{1, 1, 1},   {3, 5, 7},    {64, 10, 128}, {1, 40, 300},   {65, 10, 100},
                                  {10, 65, 3}, {2, 3, 1030}, {33, 1, 20},   {128, 256, 64}, {7, 150, 520},
                                  {0, 5, 4},   {5, 0, 4},    {5, 4, 0},     {64, 64, 9216}};

/// With stride 0 one factor is the same for all k, and every element is that factor times one and the same sum of k
/// random numbers. Where that sum happens to be small, so is the largest |reference|, while what was added up and
/// rounded on the way was not: in float32 such layouts may be wrong by 1e-4 of it from some length on.
std::vector<CudaCompare> comparisons(std::int64_t k) {
  if (k < 64) return {floats()};
  CudaCompare usual = floats();
  CudaCompare small_sums = floats();
  small_sums.dtypes = {DType::float32};
  small_sums.layouts = {CudaLayout::rows, CudaLayout::columns, CudaLayout::mixed};
  small_sums.tolerance = 1e-4;
  std::erase_if(usual.layouts, [&](CudaLayout layout) {
    return std::ranges::find(small_sums.layouts, layout) != small_sums.layouts.end();
  });
  CudaCompare others = floats();
  std::erase(others.dtypes, DType::float32);
  others.layouts = small_sums.layouts;
  return {usual, small_sums, others};
}

TEST(CudaGemm, MatmulOfEverySizeAndLayout) {
  for (const auto& [m, n, k] : kSizes) {
    for (const CudaCompare& how : comparisons(k)) {
      compare_cuda("matmul", {{{m, k}}, {{k, n}}}, [](const Inputs& in) { return raw::matmul(in[0], in[1]); }, how);
    }
  }
}

TEST(CudaGemm, IntoEveryLayoutWithAndWithoutAccumulate) {
  for (const bool accumulate : {false, true}) {
    for (const auto& [m, n, k] : kSizes) {
      for (const CudaCompare& how : comparisons(k)) {
        compare_cuda(
            accumulate ? "out += product" : "out = product", {{{m, k}}, {{k, n}}, {.sizes = {m, n}, .written = true}},
            [&](const Inputs& in) { return raw::matmul(in[0], in[1], in[2], accumulate); }, how);
        compare_cuda(
            "transposed inputs", {{{k, m}}, {{n, k}}, {.sizes = {m, n}, .written = true}},
            [&](const Inputs& in) {
              return raw::matmul(raw::transpose(in[0], 0, 1), raw::transpose(in[1], 0, 1), in[2], accumulate);
            },
            how);
      }
    }
  }
}

TEST(CudaGemm, BatchesBroadcast) {
  const std::vector<std::pair<Dims, Dims>> cases = {{{3, 4, 5}, {3, 5, 2}},
                                                    {{3, 4, 5}, {5, 2}},
                                                    {{4, 5}, {3, 5, 2}},
                                                    {{2, 1, 4, 5}, {3, 5, 2}},
                                                    {{1, 4, 5}, {6, 5, 2}},
                                                    {{2, 3, 17, 33}, {1, 3, 33, 40}},
                                                    {{0, 4, 5}, {5, 2}},
                                                    {{3, 0, 5}, {3, 5, 2}},
                                                    {{3, 4, 0}, {3, 0, 2}},
                                                    {{3, 4, 5}, {3, 5, 0}},
                                                    {{2, 3, 1, 4, 8}, {2, 1, 5, 8, 4}},
                                                    {{40000, 2, 3}, {40000, 3, 2}}};
  for (const auto& [a, b] : cases) {
    compare_cuda("batched matmul", {{a}, {b}}, [](const Inputs& in) { return raw::matmul(in[0], in[1]); }, floats());
  }
  compare_cuda(
      "heads of attention", {{{4, 6, 16, 8}}, {{4, 6, 16, 8}}},
      [](const Inputs& in) {
        const Tensor q = raw::permute(in[0], {0, 2, 1, 3});
        const Tensor k = raw::permute(in[1], {0, 2, 3, 1});
        return raw::matmul(q, k);
      },
      floats());
}

TEST(CudaGemm, OneDimensionalArguments) {
  const auto op = [](const Inputs& in) { return raw::matmul(in[0], in[1]); };
  compare_cuda("dot", {{{37}}, {{37}}}, op, floats());
  compare_cuda("vector times matrix", {{{37}}, {{37, 5}}}, op, floats());
  compare_cuda("matrix times vector", {{{5, 37}}, {{37}}}, op, floats());
  compare_cuda("matrices times vector", {{{3, 5, 37}}, {{37}}}, op, floats());
  compare_cuda("empty dot", {{{0}}, {{0}}}, op, floats());
}

TEST(CudaGemm, LinearWithBiasAndRelu) {
  for (const Dims& lead : {Dims{}, Dims{0}, Dims{1}, Dims{64}, Dims{3, 5}}) {
    for (const auto& [out, in_size] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{10, 128}, {1, 7}, {33, 1}, {128, 784}, {5, 0}, {64, 64}}) {
      Dims x = lead;
      x.push_back(in_size);
      for (const bool relu : {false, true}) {
        compare_cuda(
            relu ? "linear with relu" : "linear", {{x}, {{out, in_size}}, {{out}}},
            [relu](const Inputs& in) { return raw::linear(in[0], in[1], in[2], relu); }, floats());
        compare_cuda(
            "linear without bias", {{x}, {{out, in_size}}},
            [relu](const Inputs& in) { return raw::linear(in[0], in[1], {}, relu); }, floats());
      }
    }
  }
}

TEST(CudaGemm, LinearGradients) {
  for (const bool accumulate : {false, true}) {
    compare_cuda(
        "weight gradient", {{{4, 9, 40}}, {{4, 9, 50}}, {.sizes = {40, 50}, .written = true}},
        [&](const Inputs& in) { return raw::linear_weight_grad(in[0], in[1], in[2], accumulate); }, floats());
  }
  compare_cuda(
      "weight gradient", {{{64, 10}}, {{64, 128}}},
      [](const Inputs& in) { return raw::linear_weight_grad(in[0], in[1]); }, floats());
  compare_cuda_grad("linear", {{{64, 40}}, {{10, 40}}, {{10}}},
                    [](const Inputs& in) { return ddp::linear(in[0], in[1], in[2]); });
}

TEST(CudaGemm, BothParameterGradientsOfALinearLayer) {
  for (const bool accumulate : {false, true}) {
    for (const auto& [n, out, in_size] : kSizes) {
      compare_cuda(
          "parameter gradients",
          {{.sizes = {n, out}, .low = -0.5},
           {{n, in_size}},
           {.sizes = {out, in_size}, .written = true},
           {.sizes = {out}, .written = true}},
          [&](const Inputs& in) {
            const auto grads = raw::linear_parameter_grads(in[0], in[1], in[2], accumulate, in[3], accumulate);
            return std::vector<Tensor>{grads.weight, grads.bias};
          },
          floats());
    }
  }
  // Which dtypes do it in one launch is cuBLAS's affair; the log says so.
  for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16, DType::float16}) {
    const TensorOptions options{dtype, kGpu};
    const Tensor grad = ones({64, 1024}, options);
    const Tensor x = ones({64, 784}, options);
    const Launches launches;
    raw::linear_parameter_grads(grad, x, {}, false, {}, false);
    int count = 0;
    for (const auto& [what, times] : launches.seen()) count += times;
    std::printf("parameter gradients of %s: %d launches\n", std::string(name(dtype)).c_str(), count);
  }
}

TEST(CudaGemm, WritesNothingAroundAViewOfABucket) {
  for (const std::int64_t offset : {101, 128}) {  // at an odd place and at an aligned one
    const Tensor bucket = full({1000}, 7, {DType::float32, kGpu});
    const Tensor view = raw::view(raw::slice(bucket, 0, offset, offset + 16 * 33, 1), {16, 33});
    const Tensor a = ones({16, 20}, {DType::float32, kGpu});
    const Tensor b = ones({20, 33}, {DType::float32, kGpu});
    raw::matmul(a, b, view);
    raw::matmul(a, b, view, true);
    const auto all = bucket.to_vector<float>();
    for (std::int64_t i = 0; i < 1000; ++i) {
      EXPECT_EQ(all[static_cast<std::size_t>(i)], i >= offset && i < offset + 16 * 33 ? 40 : 7) << i;
    }
  }
}

TEST(CudaGemm, OneLaunchAndNoCopyForWhatTrainingDoes) {
  const TensorOptions options{DType::float32, kGpu};
  const Tensor x = ones({64, 784}, options);
  const Tensor weight = ones({1024, 784}, options);
  const Tensor bias = ones({1024}, options);
  const Tensor grad = ones({64, 1024}, options);
  const Tensor into = zeros({1024, 784}, options);
  {
    const Launches launches;
    raw::linear(x, weight, bias);
    EXPECT_EQ(launches.seen(), (Counts{{"cublasLtMatmul", 1}}));
  }
  {
    const Launches launches;
    raw::linear(x, weight, bias, true);
    EXPECT_EQ(launches.seen(), (Counts{{"cublasLtMatmul", 1}}));
  }
  {
    const Launches launches;
    raw::linear_weight_grad(grad, x, into, true);
    raw::matmul(grad, weight);
    EXPECT_EQ(launches.seen(), (Counts{{"cublasLtMatmul", 2}}));
  }
  {
    const Launches launches;
    raw::matmul(raw::transpose(weight, 0, 1), raw::transpose(grad, 0, 1));
    raw::matmul(ones({8, 16, 32}, options), ones({8, 32, 16}, options));
    const auto seen = launches.seen();
    EXPECT_EQ(seen.at("cublasLtMatmul"), 2);
    EXPECT_EQ(seen.count("kernels::copy"), 0U);
  }
}

TEST(CudaGemm, Tf32IsASwitchAndOffAtFirst) {
  ASSERT_FALSE(allow_tf32());
  const Tensor a = raw::to(tensor(random_values(256 * 512, 0, 1, 1), {256, 512}), DType::float32);
  const Tensor b = raw::to(tensor(random_values(512 * 256, 0, 1, 2), {512, 256}), DType::float32);
  const Tensor a_gpu = raw::to(a, kGpu);
  const Tensor b_gpu = raw::to(b, kGpu);
  const Tensor strict = raw::matmul(a_gpu, b_gpu);
  set_allow_tf32(true);
  const Tensor rounded = raw::matmul(a_gpu, b_gpu);
  set_allow_tf32(false);
  const Tensor strict_again = raw::matmul(a_gpu, b_gpu);
  const Tensor reference = raw::matmul(raw::to(a, DType::float64), raw::to(b, DType::float64));
  EXPECT_EQ(cuda_compare_detail::difference(strict, reference, 1e-5), "");
  EXPECT_EQ(cuda_compare_detail::difference(rounded, reference, 1e-2), "");
  EXPECT_FALSE(equal(strict, rounded)) << "TF32 changed no bit";
  EXPECT_TRUE(equal(strict, strict_again));
}

TEST(CudaGemm, MeasuredChoicesGiveTheSameNumbers) {
  set_autotune(true);
  for (const bool accumulate : {false, true}) {
    for (const CudaCompare& how : comparisons(96)) {
      compare_cuda(
          "measured", {{{72, 96}}, {{96, 120}}, {.sizes = {72, 120}, .written = true}},
          [&](const Inputs& in) { return raw::matmul(in[0], in[1], in[2], accumulate); }, how);
      compare_cuda(
          "measured linear", {{{72, 88}}, {{40, 88}}, {{40}}},
          [](const Inputs& in) { return raw::linear(in[0], in[1], in[2], true); }, how);
    }
  }
  set_autotune(false);
}

}  // namespace
}  // namespace ddp
