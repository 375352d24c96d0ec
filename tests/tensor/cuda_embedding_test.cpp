// Embedding and its gradient on the GPU against the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "ddp/autograd/functions.h"
#include "support/cuda_compare.h"
#include "tensor/loss.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the harness
using Inputs = std::vector<Tensor>;

constexpr Device kGpu = Device::cuda(0);

CudaCompare dense() { return {.dtypes = {DType::float64, DType::float32, DType::bfloat16, DType::float16}}; }

struct Case {
  std::int64_t rows, width, count;
};
/// Rows looked up never, once, a few and many times (over 64, where a block shares a row); more rows than a block
/// sorts; widths around a warp's; every place in one row.
constexpr Case kCases[] = {{1, 1, 1},     {10, 4, 7},      {7, 33, 500},   {130, 32, 90}, {300, 65, 1000},
                           {1, 16, 3000}, {1000, 128, 64}, {5, 100, 4097}, {2, 3, 5}};

CudaInput index_of(const Case& c) {
  return {.sizes = {c.count}, .low = 0, .high = static_cast<double>(c.rows), .dtype = DType::int64};
}

TEST(CudaEmbedding, RowsAsOnTheCpu) {
  for (const Case& c : kCases) {
    compare_cuda(concat("embedding of ", c.count, " in ", c.rows, " x ", c.width), {{{c.rows, c.width}}, index_of(c)},
                 [](const Inputs& in) { return raw::embedding(in[0], in[1]); },
                 {.dtypes = {DType::float64, DType::float32, DType::bfloat16, DType::float16}, .wide = false});
  }
  compare_cuda(
      "no index", {{{4, 3}}, {.sizes = {0, 2}, .dtype = DType::int64}},
      [](const Inputs& in) { return raw::embedding(in[0], in[1]); }, dense());
  compare_cuda(
      "index of two dimensions", {{{9, 3}}, {.sizes = {4, 5}, .low = 0, .high = 9, .dtype = DType::int64}},
      [](const Inputs& in) { return raw::embedding(in[0], in[1]); }, dense());
}

TEST(CudaEmbedding, GradientAsOnTheCpu) {
  for (const Case& c : kCases) {
    const Dims sizes{c.rows, c.width};
    const std::string what = concat("embedding_grad of ", c.count, " in ", c.rows, " x ", c.width);
    // Numbers of one sign, so that sums do not cancel. float16 holds a sum of 4097 of them.
    const CudaInput grad{.sizes = {c.count, c.width}, .low = 0, .high = 1};
    compare_cuda(
        what, {grad, index_of(c)}, [sizes](const Inputs& in) { return raw::embedding_grad(in[0], in[1], sizes); },
        dense());
    for (const bool accumulate : {false, true}) {
      compare_cuda(
          what + (accumulate ? ", added" : ", over"),
          {grad, index_of(c), {.sizes = sizes, .low = 0, .high = 1, .written = true}},
          [sizes, accumulate](const Inputs& in) { return raw::embedding_grad(in[0], in[1], sizes, in[2], accumulate); },
          dense());
    }
  }
  for (const bool accumulate : {false, true}) {
    compare_cuda(
        "no index", {{{0, 3}}, {.sizes = {0}, .dtype = DType::int64}, {.sizes = {4, 3}, .written = true}},
        [accumulate](const Inputs& in) { return raw::embedding_grad(in[0], in[1], {4, 3}, in[2], accumulate); },
        dense());
  }
}

TEST(CudaEmbedding, ThroughAutograd) {
  for (const Case& c : kCases) {
    compare_cuda_grad(concat("embedding of ", c.count, " in ", c.rows, " x ", c.width),
                      {{{c.rows, c.width}}, index_of(c)}, [](const Inputs& in) { return embedding(in[1], in[0]); },
                      {.dtypes = {DType::float64}});
  }
  // A second backward adds to the first one's gradient.
  const Tensor host_index = tensor<std::int64_t>({2, 0, 2, 1, 2, 2});
  std::vector<std::vector<double>> results;
  for (const Device device : {Device::cpu(), kGpu}) {
    Tensor weight = ones({4, 3}, {DType::float32, device});
    weight.set_requires_grad();
    const Tensor index = raw::to(host_index, device);
    for (int pass = 0; pass < 2; ++pass) {
      embedding(index, weight).backward(ones({6, 3}, {DType::float32, device}));
    }
    results.push_back(weight.grad().to_vector<double>());
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[1], (std::vector<double>{2, 2, 2, 2, 2, 2, 8, 8, 8, 0, 0, 0}));
}

TEST(CudaEmbedding, ManyWholeNumbersAddUpExactly) {
  // 50 000 places in 1 003 rows; row 7 has a third of them.
  constexpr std::int64_t kRows = 1003;
  constexpr std::int64_t kCount = 50'000;
  std::vector<std::int64_t> index(kCount);
  for (std::size_t i = 0; i < index.size(); ++i) {
    index[i] = i % 3 == 0 ? 7 : static_cast<std::int64_t>(i * 7919 % static_cast<std::size_t>(kRows));
  }
  std::vector<float> grad(kCount * 2);
  std::vector<double> expected(static_cast<std::size_t>(kRows) * 2);
  for (std::size_t i = 0; i < grad.size(); ++i) {
    grad[i] = static_cast<float>(i % 11) - 5;
    expected[static_cast<std::size_t>(index[i / 2]) * 2 + i % 2] += static_cast<double>(grad[i]);
  }
  const Tensor got =
      raw::embedding_grad(raw::to(tensor(grad, {kCount, 2}), kGpu), raw::to(tensor(index, {kCount}), kGpu), {kRows, 2});
  EXPECT_EQ(got.to_vector<double>(), expected);
}

TEST(CudaEmbedding, AnIndexOutOfRangeGivesNanAndAddsNothing) {
  for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16, DType::float16}) {
    const Tensor index = raw::to(tensor<std::int64_t>({1, -1, 3, 0, INT64_MAX, INT64_MIN}), kGpu);
    const Tensor table = ones({3, 2}, {dtype, kGpu});
    const Tensor strided = raw::transpose(ones({2, 3}, {dtype, kGpu}), 0, 1);
    for (const Tensor& weight : {table, strided}) {
      const auto y = raw::embedding(weight, index).to_vector<double>();
      for (std::size_t i = 0; i < y.size(); ++i) {
        const bool good = i / 2 == 0 || i / 2 == 3;
        ASSERT_TRUE(good ? y[i] == 1 : std::isnan(y[i])) << name(dtype) << " " << i;
      }
    }
    const auto grad = raw::embedding_grad(ones({6, 2}, {dtype, kGpu}), index, {3, 2}).to_vector<double>();
    EXPECT_EQ(grad, (std::vector<double>{1, 1, 1, 1, 0, 0})) << name(dtype);
  }
}

}  // namespace
}  // namespace ddp
