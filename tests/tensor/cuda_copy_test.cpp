// Movement of elements on the GPU against the CPU: fills, copies with every conversion and layout, row look-up.
#include <gtest/gtest.h>

#include <cmath>

#include "ddp/autograd/functions.h"
#include "support/cuda_compare.h"
#include "tensor/copy.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the harness
using Inputs = std::vector<Tensor>;

const std::vector<DType> kEvery = {DType::float64, DType::float32, DType::bfloat16, DType::float16,
                                   DType::int32,   DType::int64,   DType::uint8,    DType::boolean};
CudaCompare every() { return {.dtypes = kEvery, .wide = false}; }  // copies are exact: compared in their own dtype

CudaInput numbers(const Dims& sizes, bool written = false) {
  return {.sizes = sizes, .low = 0, .high = 120, .written = written};
}

TEST(CudaFill, EveryDtypeAndLayout) {
  for (const Dims& sizes : {Dims{}, Dims{1}, Dims{5, 33}, Dims{4, 64}, Dims{3, 5, 7}, Dims{0, 4}}) {
    for (const double value : {0.0, 1.0}) {
      compare_cuda(
          "fill_", {numbers(sizes, true)},
          [value](const Inputs& in) {
            raw::fill_(in[0], value);
            return in[0];
          },
          every());
    }
  }
  for (const double value : {std::nan(""), std::numeric_limits<double>::infinity(), 1.0 / 3, 65520.0, 1e300}) {
    compare_cuda("fill_", {numbers({9, 5}, true)},
                 [value](const Inputs& in) {
                   raw::fill_(in[0], value);
                   return in[0];
                 },
                 {.dtypes = {DType::float64, DType::float32, DType::bfloat16, DType::float16}, .wide = false});
  }
}

TEST(CudaCopy, EveryPairOfDtypes) {
  for (const DType to : kEvery) {
    for (const Dims& sizes : {Dims{}, Dims{37}, Dims{5, 33}, Dims{4, 64}, Dims{6, 0}}) {
      compare_cuda(concat("to ", to), {numbers(sizes)}, [to](const Inputs& in) { return raw::to(in[0], to); }, every());
    }
    compare_cuda(concat("fractions to ", to), {{.sizes = {9, 40}, .low = -300, .high = 300, .specials = true}},
                 [to](const Inputs& in) { return raw::to(in[0], to); },
                 {.dtypes = {DType::float64, DType::float32, DType::bfloat16, DType::float16}, .wide = false});
    compare_cuda(concat("large numbers to ", to), {{.sizes = {9, 40}, .low = -3e19, .high = 3e19}},
                 [to](const Inputs& in) { return raw::to(in[0], to); },
                 {.dtypes = {DType::float64, DType::float32, DType::bfloat16}, .wide = false});
    compare_cuda(concat("whole numbers to ", to), {{.sizes = {9, 40}, .low = -2e9, .high = 2e9}},
                 [to](const Inputs& in) { return raw::to(in[0], to); },
                 {.dtypes = {DType::int32, DType::int64}, .wide = false});
  }
}

TEST(CudaCopy, IntoEveryLayoutFromEveryLayout) {
  for (const Dims& sizes : {Dims{5, 33}, Dims{40, 33}, Dims{3, 9, 70}, Dims{2, 3, 4, 5}}) {
    for (const bool swapped : {false, true}) {  // the destination's layout with another one's source
      compare_cuda(
          "copy_",
          swapped ? std::vector<CudaInput>{numbers(sizes), numbers(sizes, true)}
                  : std::vector<CudaInput>{numbers(sizes, true), numbers(sizes)},
          [swapped](const Inputs& in) {
            const Tensor& to = in[swapped ? 1 : 0];
            raw::copy_(to, in[swapped ? 0 : 1]);
            return to;
          },
          every());
    }
    compare_cuda(
        "copy_ of another dtype",
        {numbers(sizes, true), {.sizes = sizes, .low = 0, .high = 120, .dtype = DType::float32}},
        [](const Inputs& in) {
          raw::copy_(in[0], in[1]);
          return in[0];
        },
        every());
  }
  compare_cuda(
      "copy_ of a row", {numbers({7, 64}, true), numbers({64})},
      [](const Inputs& in) {
        raw::copy_(in[0], in[1]);
        return in[0];
      },
      every());
}

TEST(CudaCopy, TransposedOverlappingAndPermuted) {
  for (const Dims& sizes : {Dims{33, 70}, Dims{64, 64}, Dims{8, 8}, Dims{7, 100}, Dims{1000, 9}}) {
    compare_cuda(
        "transposed", {numbers(sizes)}, [](const Inputs& in) { return raw::contiguous(raw::transpose(in[0], 0, 1)); },
        every());
  }
  for (const Dims& order : {Dims{0, 2, 3, 1}, Dims{0, 3, 1, 2}, Dims{3, 2, 1, 0}, Dims{1, 0, 3, 2}, Dims{2, 0, 1, 3}}) {
    compare_cuda(
        "permuted", {numbers({3, 10, 9, 12})},
        [&](const Inputs& in) { return raw::contiguous(raw::permute(in[0], order)); }, every());
  }
  compare_cuda(
      "its own transposition", {numbers({20, 20}, true)},
      [](const Inputs& in) {
        raw::copy_(in[0], raw::transpose(in[0], 0, 1));
        return in[0];
      },
      every());
  compare_cuda(
      "cat", {numbers({5, 9}), numbers({5, 1}), numbers({5, 0}), numbers({5, 16})},
      [](const Inputs& in) { return raw::cat(in, 1); }, every());
}

TEST(CudaCopy, IndexRows) {
  const CudaInput index = {.sizes = {11}, .low = 0, .high = 6, .dtype = DType::int64};
  for (const Dims& sizes : {Dims{6}, Dims{6, 1}, Dims{6, 33}, Dims{6, 64}, Dims{6, 3, 5}, Dims{6, 0}}) {
    compare_cuda(
        "index_rows", {numbers(sizes), index}, [](const Inputs& in) { return raw::index_rows(in[0], in[1]); }, every());
  }
  CudaInput none = index;
  none.sizes = {0};
  compare_cuda(
      "index_rows", {numbers({6, 5}), none}, [](const Inputs& in) { return raw::index_rows(in[0], in[1]); }, every());
}

TEST(CudaCopy, AnIndexOutOfRangeGivesNanOrZero) {
  const Device gpu = Device::cuda(0);
  const Tensor index = ddp::tensor(std::vector<std::int64_t>{1, 2, -1, 0}, {4}, gpu);
  const auto rows = [&](DType dtype) {
    const Tensor x = raw::reshape(raw::to(raw::to(arange(4), dtype), gpu), {2, 2});
    return raw::index_rows(x, index).to_vector<double>();
  };
  for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16, DType::float16}) {
    const auto got = rows(dtype);
    for (const std::size_t i : {2U, 3U, 4U, 5U}) EXPECT_TRUE(std::isnan(got[i])) << name(dtype);
    EXPECT_EQ((std::vector<double>{got[0], got[1], got[6], got[7]}), (std::vector<double>{2, 3, 0, 1})) << name(dtype);
  }
  for (const DType dtype : {DType::int32, DType::int64, DType::uint8}) {
    EXPECT_EQ(rows(dtype), (std::vector<double>{2, 3, 0, 0, 0, 0, 0, 1})) << name(dtype);
  }
}

// Streams of two GPUs know nothing of each other: a copy comes after what has made its source, and before what changes
// the source next.
TEST(CudaCopy, ToAnotherGpuIsInOrderWithTheSource) {
  if (device_count(DeviceType::cuda) < 2) GTEST_SKIP() << "needs two GPUs";
  const Device from = Device::cuda(0);
  const Device to = Device::cuda(1);
  const Stream from_stream(from);
  const Stream to_stream(to);
  const StreamGuard on_from(from_stream);
  const StreamGuard on_to(to_stream);
  const auto delay = [](Device device) {  // some 20 ms
    Tensor large = empty({64 << 20}, {DType::float32, device});
    for (int i = 0; i < 200; ++i) large.fill_(i);
  };
  constexpr std::int64_t kElements = 16 << 20;
  Tensor x = zeros({kElements}, {DType::float32, from});
  delay(from);
  x.fill_(1);
  const Tensor made_late = raw::to(x, to);
  delay(to);
  const Tensor copied_late = raw::to(x, to);
  x.fill_(2);
  const std::vector<float> ones(kElements, 1);
  EXPECT_EQ(made_late.to_vector<float>(), ones);
  EXPECT_EQ(copied_late.to_vector<float>(), ones);
}

TEST(CudaFunctions, GradientsOfShapesAsOnTheCpu) {
  const std::vector<CudaInput> one = {{{4, 6, 10}}};
  compare_cuda_grad("transpose", one, [](const Inputs& in) { return ddp::transpose(in[0], 0, 2); });
  compare_cuda_grad("permute", one, [](const Inputs& in) { return ddp::contiguous(ddp::permute(in[0], {2, 0, 1})); });
  compare_cuda_grad("reshape", one, [](const Inputs& in) { return ddp::reshape(in[0], {8, 30}); });
  compare_cuda_grad("slice", one, [](const Inputs& in) { return ddp::slice(in[0], 1, 1, 6, 2); });
  compare_cuda_grad("select", one, [](const Inputs& in) { return ddp::select(in[0], 2, 3); });
  compare_cuda_grad("cat", {{{4, 6}}, {{4, 3}}}, [](const Inputs& in) { return ddp::cat({in[0], in[1], in[0]}, 1); });
  compare_cuda_grad("to another device and back", one,
                    [](const Inputs& in) { return ddp::to(ddp::to(in[0], Device::cpu()), in[0].device()); });
}

}  // namespace
}  // namespace ddp
