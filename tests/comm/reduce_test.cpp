// Reduction functions on what whole numbers do not reach: rounding, NaN, signed zeros, tails of blocks.
#include "comm/reduce.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "comm/reduce_half.h"

namespace ddp::test {
namespace {

using comm::ReduceOp;

TEST(ReduceTest, EveryHalfWidensLikeHalfItself) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(all.size());
  comm::to_floats<Half>(wide.data(), all.data(), all.size());
  std::vector<std::uint16_t> back(all.size());
  comm::from_floats<Half>(back.data(), wide.data(), wide.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const float one = Half::to_float(all[i]);
    if (std::isnan(one)) {
      EXPECT_TRUE(std::isnan(wide[i]) && std::isnan(Half::to_float(back[i])));
    } else {
      ASSERT_EQ(wide[i], one) << i;
      ASSERT_EQ(back[i], all[i]) << i;
    }
  }
}

TEST(ReduceTest, NarrowingRoundsLikeTheTypesThemselves) {
  std::vector<float> values;
  // Steps through all exponents with uneven mantissas; ties among them.
  for (std::uint64_t bits = 0; bits < 0x7f800000U; bits += 4093U << 4) {
    float value = 0;
    const auto word = static_cast<std::uint32_t>(bits);
    std::memcpy(&value, &word, sizeof value);
    values.insert(values.end(), {value, -value});
  }
  for (const float tie : {1.0F + 0x1p-11F, 1.0F + 3 * 0x1p-11F, 1.0F + 0x1p-8F, 1.0F + 3 * 0x1p-8F, 65519.0F, 65520.0F,
                          0x1p-25F, 3 * 0x1p-25F, INFINITY, -INFINITY}) {
    values.push_back(tie);
  }
  std::vector<std::uint16_t> half(values.size());
  std::vector<std::uint16_t> brain(values.size());
  comm::from_floats<Half>(half.data(), values.data(), values.size());
  comm::from_floats<BFloat16>(brain.data(), values.data(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(half[i], Half(values[i]).bits) << values[i];
    ASSERT_EQ(brain[i], BFloat16(values[i]).bits) << values[i];
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  comm::from_floats<BFloat16>(brain.data(), &nan, 1);
  EXPECT_TRUE(std::isnan(static_cast<float>(std::bit_cast<BFloat16>(brain[0]))));
}

TEST(ReduceTest, SixteenBitSumsAreRoundedOnce) {
  // 2049 is no half; the sum of 2048 and 1 is a tie that goes to even.
  for (const std::size_t n : {1U, 7U, 8U, 1023U, 1025U, 2500U}) {
    std::vector<Half> a(n, Half(2048.0F));
    const std::vector<Half> b(n, Half(1.0F));
    comm::reduce_function(DType::float16, ReduceOp::sum)(a.data(), a.data(), b.data(), n);
    for (const Half value : a) ASSERT_EQ(static_cast<float>(value), 2048.0F);
    std::vector<BFloat16> c(n, BFloat16(256.0F));
    const std::vector<BFloat16> d(n, BFloat16(3.0F));
    comm::reduce_function(DType::bfloat16, ReduceOp::sum)(c.data(), c.data(), d.data(), n);
    for (const BFloat16 value : c) ASSERT_EQ(static_cast<float>(value), 260.0F);
  }
}

TEST(ReduceTest, NaNWinsOnEitherSide) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
    const std::vector<float> a{nan, 1.0F, nan};
    const std::vector<float> b{1.0F, nan, nan};
    std::vector<float> out(3);
    comm::reduce_function(DType::float32, op)(out.data(), a.data(), b.data(), 3);
    for (const float value : out) EXPECT_TRUE(std::isnan(value)) << to_string(op);
  }
}

}  // namespace
}  // namespace ddp::test
