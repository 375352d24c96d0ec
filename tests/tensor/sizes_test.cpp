#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "ddp/core/error.h"
#include "ddp/tensor/tensor.h"
#include "tensor/conv.h"
#include "tensor/copy.h"
#include "tensor/sizes.h"

/// Sizes whose number of elements or bytes does not fit 64 bits: a product that wraps round would give memory that
/// is too small for its sizes.
namespace ddp {
namespace {

constexpr std::int64_t kHalf = std::int64_t{1} << 32;  // kHalf * kHalf wraps round to 0
constexpr std::int64_t kHuge = std::int64_t{1} << 62;

TEST(SizesTest, ElementsBeyond64BitsAreRefused) {
  EXPECT_THROW(empty({kHalf, kHalf}), InvalidArgument);
  EXPECT_THROW(zeros({kHalf / 2, kHalf}), InvalidArgument);
  EXPECT_THROW(raw::checked_numel({kHalf, kHalf + 1}), InvalidArgument);
  EXPECT_THROW(raw::expand(ones({1, 1}), {kHalf, kHalf}), InvalidArgument);
  EXPECT_THROW(raw::reshape(empty({0}), {kHalf, kHalf}), InvalidArgument);
  EXPECT_THROW(raw::reshape(ones({4}), {kHalf, kHalf, -1}), InvalidArgument);
}

TEST(SizesTest, BytesBeyond63BitsAreRefused) {
  EXPECT_THROW(empty({kHalf / 2, kHalf / 2}, {.dtype = DType::float64}), InvalidArgument);
  EXPECT_THROW(empty({kHuge}), InvalidArgument);
  EXPECT_THROW(arange(kHuge), InvalidArgument);
}

TEST(SizesTest, NothingIsNothingHoweverLargeTheOtherSizes) {
  EXPECT_EQ(raw::checked_numel({kHalf, kHalf, 0}), 0);
  EXPECT_EQ(raw::checked_numel({0, kHalf, 5}), 0);
  EXPECT_EQ(empty({0, kHalf}).numel(), 0);
}

TEST(SizesTest, ReachOfForeignMemoryBeyond64BitsIsRefused) {
  float number = 0;
  EXPECT_THROW(from_blob(&number, {kHalf, kHalf}, {}), InvalidArgument);
  EXPECT_THROW(from_blob(&number, {4, 4}, {}, {kHuge, kHuge}), InvalidArgument);
  EXPECT_THROW(from_blob(&number, {2}, {}, {kHuge}), InvalidArgument);
  EXPECT_EQ(from_blob(&number, {1}, {}, {kHuge}).item<float>(), 0);
}

TEST(SizesTest, WindowsBeyond64BitsAreRefused) {
  const Tensor x = ones({1, 1, 2, 2});
  const Tensor weight = ones({1, 1, 2, 2});
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(raw::conv2d(x, weight, {}, {.padding = {kHuge, kHuge}}), InvalidArgument);
  EXPECT_THROW(raw::conv2d(x, weight, {}, {.padding = {most, 0}}), InvalidArgument);
  EXPECT_THROW(raw::conv2d(x, weight, {}, {.dilation = {most, 1}}), InvalidArgument);
  EXPECT_EQ(raw::conv2d(x, weight, {}, {.stride = {most, most}}).item<float>(), 4);
  EXPECT_THROW(raw::max_pool2d(x, {.kernel = {2, 2}, .stride = {1, 1}, .padding = {kHuge, 0}}), InvalidArgument);
  EXPECT_EQ(raw::max_pool2d(x, {.kernel = {2, 2}, .stride = {most, most}, .padding = {0, 0}}).values.item<float>(), 1);
}

TEST(SizesTest, ConvolutionOverNoChannelsIsItsBias) {
  const Tensor bias = tensor<float>({1, 2});
  const Tensor y = raw::conv2d(empty({1, 0, 3, 3}), empty({2, 0, 2, 2}), bias, {});
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{1, 1, 1, 1, 2, 2, 2, 2}));
  EXPECT_TRUE(equal(raw::conv2d(empty({1, 0, 3, 3}), empty({2, 0, 2, 2}), {}, {}), zeros({1, 2, 2, 2})));
}

}  // namespace
}  // namespace ddp
