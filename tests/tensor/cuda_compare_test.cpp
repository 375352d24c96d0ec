// The comparison of devices itself, with a second CPU device in the GPU's place: it passes what is right and
// finds what is wrong.
#include "support/cuda_compare.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "ddp/autograd/functions.h"
#include "tensor/elementwise.h"
#include "tensor/reduce.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the harness under test

const Device kOther = Device::cpu(1);

CudaCompare everything() {
  return {.dtypes = {DType::float64, DType::float32, DType::bfloat16, DType::float16}, .device = kOther};
}
CudaCompare one(DType dtype = DType::float32, CudaLayout layout = CudaLayout::row_major) {
  return {.dtypes = {dtype}, .layouts = {layout}, .device = kOther};
}

bool there(const Tensor& x) { return x.device() == kOther; }

TEST(CudaCompare, PassesWhatIsRight) {
  const auto add = [](const std::vector<Tensor>& in) { return raw::binary(raw::Binary::add, in[0], in[1]); };
  compare_cuda("add", {{{4, 33}}, {{33}}}, add, everything());
  compare_cuda("add", {{{0, 3}}, {{3}}}, add, everything());
  compare_cuda("add", {{{}}, {{}}}, add, everything());
  CudaCompare whole = everything();
  whole.dtypes = {DType::int32, DType::int64, DType::uint8};
  compare_cuda("add", {{.sizes = {5, 7}, .low = 0, .high = 200}, {.sizes = {5, 7}, .low = 0, .high = 200}}, add, whole);
  compare_cuda(
      "relu", {{.sizes = {5, 33}, .specials = true}},
      [](const auto& in) { return raw::unary(raw::Unary::relu, in[0]); }, everything());
  // Beyond the range of the narrower types.
  compare_cuda("exp", {{.sizes = {5, 33}, .low = 85, .high = 95}},
               [](const auto& in) { return raw::unary(raw::Unary::exp, in[0]); },
               {.dtypes = {DType::float64, DType::float32}, .device = kOther});
  compare_cuda(
      "max and in place",
      {{.sizes = {6, 5}, .written = true}, {.sizes = {5}, .low = 0, .high = 6, .dtype = DType::int64}},
      [](const auto& in) {
        const raw::MaxResult found = raw::max(in[0], 0, false);
        raw::scale_(in[0], 3);
        return std::vector<Tensor>{found.values, found.indices, in[0], raw::index_rows(in[0], in[1])};
      },
      everything());
  compare_cuda_grad(
      "gelu of a product", {{{5, 7}}, {{5, 1}}}, [](const auto& in) { return ddp::gelu(in[0] * in[1]); }, everything());
}

TEST(CudaCompare, FindsAWrongNumber) {
  const auto off = [](double by) {
    return [by](const std::vector<Tensor>& in) {
      const Tensor y = raw::clone(in[0]);
      if (there(y)) raw::axpy_(raw::slice(y, 0, 2, 3, 1), ones({1}, y.options()), by);
      return y;
    };
  };
  compare_cuda("off", {{.sizes = {7}, .low = 1, .high = 2}}, off(0.5e-5),
               {.dtypes = {DType::float32}, .device = kOther});
  EXPECT_NONFATAL_FAILURE(compare_cuda("off", {{.sizes = {7, 3}, .low = 1, .high = 2}}, off(3e-5), one()),
                          "element 6 [2, 0] is");
  EXPECT_NONFATAL_FAILURE(compare_cuda("off", {{{7}}}, off(2e-10), one(DType::float64)), "element 2 [2] is");
  EXPECT_NONFATAL_FAILURE(compare_cuda("off", {{{7}}}, off(1), one(DType::int64, CudaLayout::sliced)),
                          "off, int64, sliced, inputs [7]");
  EXPECT_NONFATAL_FAILURE(compare_cuda("off", {{{7}}}, off(std::nan("")), one(DType::bfloat16)), "nan, on the CPU");
}

TEST(CudaCompare, FindsWhatIsNotWrittenChangedOrMissing) {
  EXPECT_NONFATAL_FAILURE(
      compare_cuda(
          "unwritten", {{{7, 4}}},
          [](const auto& in) { return there(in[0]) ? empty({7, 4}, in[0].options()) : raw::clone(in[0]); },
          {.dtypes = {DType::float32}, .layouts = {CudaLayout::row_major}, .repeatable = false, .device = kOther}),
      "nan, on the CPU");
  EXPECT_NONFATAL_FAILURE(compare_cuda(
                              "changed", {{{7}}},
                              [](const auto& in) {
                                const Tensor y = raw::clone(in[0]);
                                if (there(y)) raw::fill_(in[0], 3);
                                return y;
                              },
                              one()),
                          "memory of input 0 was changed");
  EXPECT_NONFATAL_FAILURE(compare_cuda(
                              "too far", {{.sizes = {7}, .written = true}},
                              [](const auto& in) {
                                if (there(in[0])) raw::fill_(make_view(in[0], {1}, {1}, 2), 3);
                                return in[0];
                              },
                              one(DType::float32, CudaLayout::offset)),
                          "memory around input 0 was changed");
  EXPECT_NONFATAL_FAILURE(
      compare_cuda(
          "sizes", {{{7}}}, [](const auto& in) { return raw::slice(in[0], 0, 0, there(in[0]) ? 6 : 7, 1); }, one()),
      "sizes are [6], on the CPU [7]");
  EXPECT_NONFATAL_FAILURE(compare_cuda(
                              "throws", {{{7}}},
                              [](const auto& in) {
                                if (there(in[0])) detail::fail<DeviceError>("no");
                                return in[0];
                              },
                              one()),
                          "throws, float32, row-major, inputs [7]: no");
  int run = 0;
  EXPECT_NONFATAL_FAILURE(
      compare_cuda(
          "changing", {{{7}}},
          [&](const auto& in) { return raw::binary_scalar(raw::Binary::mul, in[0], 1 + 1e-6 * run++); }, one()),
      "a second run differs");
}

TEST(CudaCompare, FindsAWrongGradient) {
  EXPECT_NONFATAL_FAILURE(
      compare_cuda_grad(
          "gradient", {{{7}}, {{7}}},
          [](const auto& in) { return there(in[0]) ? in[0] * in[1].detach() + in[1] - in[1].detach() : in[0] * in[1]; },
          one()),
      "result 2");
}

}  // namespace
}  // namespace ddp
