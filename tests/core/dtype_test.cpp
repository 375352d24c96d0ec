#include "ddp/core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ddp/core/error.h"

namespace ddp {
namespace {

TEST(DType, NamesRoundTrip) {
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16, DType::int32, DType::int64,
                            DType::uint8, DType::boolean}) {
    EXPECT_EQ(parse_dtype(name(dtype)), dtype);
  }
  EXPECT_EQ(size_of(DType::float64), 8U);
  EXPECT_EQ(size_of(DType::bfloat16), 2U);
  EXPECT_EQ(size_of(DType::boolean), 1U);
}

TEST(DType, UnknownNameListsTheNames) {
  try {
    parse_dtype("float8");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("'float8'"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("bfloat16"), std::string::npos);
  }
}

/// What rounding to nearest, ties to even, must give: the neighbour with the least distance.
template <class Short>
void check_rounding(float value) {
  const Short rounded(value);
  const float back = static_cast<float>(rounded);
  for (const int step : {-1, 1}) {
    Short neighbour;
    neighbour.bits = static_cast<std::uint16_t>(rounded.bits + step);
    const float other = static_cast<float>(neighbour);
    if (!std::isfinite(other) || std::signbit(other) != std::signbit(back)) continue;
    const double distance = std::abs(static_cast<double>(value) - back);
    const double other_distance = std::abs(static_cast<double>(value) - other);
    ASSERT_LE(distance, other_distance) << value;
    if (distance == other_distance) {
      ASSERT_EQ(rounded.bits & 1, 0) << value;
    }
  }
}

TEST(Half, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const float value = Half::to_float(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Half::to_float(Half::from_float(value))));
    } else {
      ASSERT_EQ(Half::from_float(value), bits);
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  for (std::uint32_t bits = 1; bits < 0x7bffU; ++bits) {
    const float low = Half::to_float(static_cast<std::uint16_t>(bits));
    const float high = Half::to_float(static_cast<std::uint16_t>(bits + 1));
    for (const float t : {0.25F, 0.5F, 0.75F}) check_rounding<Half>(low + t * (high - low));
  }
  EXPECT_EQ(Half(65504.0F).bits, 0x7bff);
  EXPECT_EQ(Half(65519.0F).bits, 0x7bff);
  EXPECT_EQ(Half(65520.0F).bits, 0x7c00);
  EXPECT_EQ(Half(-std::numeric_limits<float>::infinity()).bits, 0xfc00);
  EXPECT_EQ(Half(0x1p-25F).bits, 0);  // tie between 0 and the smallest: even is 0
  EXPECT_EQ(Half(0x1.8p-25F).bits, 1);
}

TEST(BFloat16, EveryValueSurvivesAndRoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    BFloat16 value;
    value.bits = static_cast<std::uint16_t>(bits);
    const auto wide = static_cast<float>(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(wide))));
    } else {
      ASSERT_EQ(BFloat16(wide).bits, bits);
    }
  }
  EXPECT_EQ(BFloat16(1.00390625F).bits, 0x3f80);  // 1 + 2^-8, tie: even
  EXPECT_EQ(BFloat16(1.01171875F).bits, 0x3f82);  // 1 + 3 * 2^-8, tie: even
  EXPECT_EQ(BFloat16(1.004F).bits, 0x3f81);
}

}  // namespace
}  // namespace ddp
