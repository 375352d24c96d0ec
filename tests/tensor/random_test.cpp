#include "ddp/tensor/random.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ddp/core/device.h"
#include "reference.h"
#include "tensor/loss.h"
#include "tensor/philox.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the helpers of these tests

// Known answers of the Random123 distribution (kat_vectors, philox4x32, 10 rounds).
TEST(Philox, KnownAnswers) {
  using Block = raw::PhiloxBlock;
  EXPECT_EQ(raw::philox4x32_10({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(raw::philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(raw::philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Number k of the stream that starts at a block.
std::uint32_t word(std::uint64_t seed, std::uint64_t block, std::uint64_t k) {
  return raw::philox_block(seed, block + k / 4)[k % 4];
}

// Offsets around 2^32 need the counter's second half, sizes around 1024 the seam between two pieces.
const std::uint64_t kSeed = 0x123456789abcdef0U;
const std::uint64_t kOffset = 0xffffff00U;

TEST(Uniform, FollowsTheDocumentedNumbers) {
  for (const std::int64_t n : {1, 3, 1024, 2051, 40000}) {
    Generator generator;
    generator.set_state(kSeed, kOffset);
    const Tensor x = empty({n});
    raw::uniform_(x, 0, 1, generator);
    EXPECT_EQ(generator.offset(), kOffset + static_cast<std::uint64_t>((n + 3) / 4));
    const std::vector<float> got = x.to_vector<float>();
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], static_cast<float>(word(kSeed, kOffset, i) >> 8U) * 0x1p-24F) << i;
    }
    generator.set_state(kSeed, kOffset);
    const Tensor y = empty({n}, {DType::float64, Device::cpu()});
    raw::uniform_(y, 0, 1, generator);
    EXPECT_EQ(generator.offset(), kOffset + static_cast<std::uint64_t>((2 * n + 3) / 4));
    const std::vector<double> wide = y.to_vector<double>();
    for (std::size_t i = 0; i < wide.size(); ++i) {
      const std::uint64_t bits = (std::uint64_t{word(kSeed, kOffset, 2 * i)} << 32U) | word(kSeed, kOffset, 2 * i + 1);
      ASSERT_EQ(wide[i], static_cast<double>(bits >> 11U) * 0x1p-53);
    }
  }
}

TEST(Uniform, StaysBelowTheUpperBound) {
  for (const DType dtype : kFloating) {
    for (const auto& [low, high] :
         std::vector<std::pair<double, double>>{{0, 1}, {-3, -1}, {0.1, 0.3}, {-1, 0}, {1, 1.01}}) {
      Generator generator(1);
      const Tensor x = empty({20000}, {dtype, Device::cpu()});
      raw::uniform_(x, low, high, generator);
      double sum = 0;
      for (const double value : x.to_vector<double>()) {
        ASSERT_LT(value, high) << name(dtype);
        ASSERT_GE(value, low - 2 * epsilon(dtype) * std::fabs(low));
        sum += value;
      }
      // Standard error of the mean is (high - low) / sqrt(12 * 20000); coarse dtypes add their spacing.
      EXPECT_NEAR(
          sum / 20000, (low + high) / 2,
          5 * (high - low) / std::sqrt(12.0 * 20000) + 2 * epsilon(dtype) * std::max(std::fabs(low), std::fabs(high)));
    }
  }
  Generator generator(1);
  const Tensor x = empty({3});
  raw::uniform_(x, 2, 2, generator);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{2, 2, 2}));
}

TEST(Normal, IsBoxMullerOfTheDocumentedNumbers) {
  for (const DType dtype : {DType::float32, DType::float64}) {
    for (const std::int64_t n : {1, 1023, 5000}) {
      Generator generator;
      generator.set_state(kSeed, kOffset);
      const Tensor x = empty({n}, {dtype, Device::cpu()});
      raw::normal_(x, 0.5, 2, generator);
      const std::vector<double> got = x.to_vector<double>();
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double a = (word(kSeed, kOffset, i / 2 * 2) + 1.0) / 4294967296.0;
        const double b = word(kSeed, kOffset, i / 2 * 2 + 1) / 4294967296.0;
        const double radius = std::sqrt(-2 * std::log(a));
        const double angle = 2 * std::acos(-1.0) * b;
        ASSERT_NEAR(got[i], 0.5 + 2 * radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle)), 1e-6);
      }
    }
  }
}

TEST(Normal, HasItsMoments) {
  manual_seed(3);
  const std::vector<double> x = randn({100000}).to_vector<double>();
  double moments[4] = {};
  for (const double value : x) {
    for (int k = 0; k < 4; ++k) moments[k] += std::pow(value, k + 1) / 100000;
  }
  // Five standard errors: sqrt(1, 2, 15, 96) / sqrt(100000).
  EXPECT_NEAR(moments[0], 0, 5 * 0.0032);
  EXPECT_NEAR(moments[1], 1, 5 * 0.0045);
  EXPECT_NEAR(moments[2], 0, 5 * 0.0123);
  EXPECT_NEAR(moments[3], 3, 5 * 0.031);
}

TEST(Randint, FollowsTheDocumentedNumbersInEveryDtype) {
  for (const DType dtype : kEvery) {
    const std::int64_t low = dtype == DType::uint8 ? 3 : dtype == DType::boolean ? 0 : -5;
    const std::int64_t high = dtype == DType::boolean ? 2 : 9;
    Generator generator;
    generator.set_state(kSeed, kOffset);
    const Tensor x = empty({2500}, {dtype, Device::cpu()});
    raw::randint_(x, low, high, generator);
    EXPECT_EQ(generator.offset(), kOffset + 1250);
    const std::vector<double> got = x.to_vector<double>();
    for (std::size_t i = 0; i < got.size(); ++i) {
      // floor(r * range / 2^64) by halves: range is below 2^32.
      const auto range = static_cast<std::uint64_t>(high - low);
      const std::uint64_t top = word(kSeed, kOffset, 2 * i) * range;
      const std::uint64_t bottom = word(kSeed, kOffset, 2 * i + 1) * range;
      const std::uint64_t above = (top + (bottom >> 32U)) >> 32U;
      ASSERT_EQ(got[i], static_cast<double>(low + static_cast<std::int64_t>(above)));
    }
  }
}

TEST(Randint, WholeRangeOfInt64AndEvenShares) {
  Generator generator(4);
  const Tensor wide = empty({1000}, {DType::int64, Device::cpu()});
  raw::randint_(wide, INT64_MIN, INT64_MAX, generator);
  const std::vector<std::int64_t> values = wide.to_vector<std::int64_t>();
  EXPECT_GT(std::count_if(values.begin(), values.end(), [](std::int64_t v) { return v < 0; }), 420);
  EXPECT_GT(std::count_if(values.begin(), values.end(), [](std::int64_t v) { return v > 0; }), 420);
  int counts[6] = {};
  for (const std::int64_t value :
       randint(0, 6, {60000}, {DType::int64, Device::cpu()}, &generator).to_vector<std::int64_t>()) {
    ++counts[value];
  }
  for (const int count : counts) EXPECT_NEAR(count, 10000, 5 * 92);  // five standard deviations
}

TEST(Random, TheSameForAnyNumberOfThreads) {
  const int before = num_threads();
  const auto draw = [](int threads) {
    set_num_threads(threads);
    Generator generator(99);
    std::vector<std::vector<double>> all;
    all.push_back(rand({50001}, {}, &generator).to_vector<double>());
    all.push_back(rand({50001}, {DType::float64, Device::cpu()}, &generator).to_vector<double>());
    all.push_back(randn({50001}, {}, &generator).to_vector<double>());
    all.push_back(randint(-7, 1000, {50001}, {DType::int64, Device::cpu()}, &generator).to_vector<double>());
    const raw::DropoutResult dropped = raw::dropout(ones({211, 237}), 0.3, generator);
    all.push_back(dropped.mask.to_vector<double>());
    all.push_back(dropped.y.to_vector<double>());
    return all;
  };
  const auto alone = draw(1);
  EXPECT_EQ(draw(2), alone);
  EXPECT_EQ(draw(5), alone);
  set_num_threads(before);
}

TEST(Random, SeedsAndGenerators) {
  manual_seed(7);
  EXPECT_EQ(default_generator().seed(), 7U);
  EXPECT_EQ(default_generator(Device::cpu(3)).seed(), 7U);
  const Tensor a = rand({5});
  const Tensor b = rand({5});
  EXPECT_FALSE(equal(a, b));
  manual_seed(7);
  EXPECT_TRUE(equal(rand({5}), a));
  EXPECT_EQ(default_generator().offset(), 2U);
  Generator own(7);
  EXPECT_TRUE(equal(rand({5}, {}, &own), a));
  EXPECT_EQ(rand({0}).numel(), 0);
  EXPECT_EQ(rand({}).dim(), 0);
}

TEST(Random, Errors) {
  Generator generator;
  const Tensor x = ones({2, 3});
  EXPECT_EQ(error_of([&] { raw::uniform_(x, 1, 0, generator); }),
            "uniform_: range [1, 0); allowed: finite, low at most high");
  EXPECT_NE(error_of([&] { raw::uniform_(raw::transpose(x, 0, 1), 0, 1, generator); }).find("is not row-major"),
            std::string::npos);
  EXPECT_NE(error_of([&] { raw::uniform_(arange(2), 0, 1, generator); }), "no error");
  EXPECT_NE(error_of([&] { raw::normal_(x, 0, -1, generator); }), "no error");
  EXPECT_EQ(error_of([&] { raw::randint_(arange(2), 3, 3, generator); }),
            "randint_: range [3, 3); allowed: low below high");
  EXPECT_EQ(error_of([&] { raw::randint_(zeros({1}, {DType::uint8, Device::cpu()}), 0, 257, generator); }),
            "randint_: range [0, 257) does not fit dtype uint8");
  EXPECT_EQ(error_of([&] { raw::dropout(x, 1.5, generator); }), "dropout: probability 1.5; allowed: 0 to 1");
  EXPECT_EQ(error_of([&] { raw::dropout_grad(x, x, 0.5); }), "dropout_grad: mask has dtype float32; allowed: uint8");
}

TEST(Dropout, MaskAndScaleInEveryDtypeAndLayout) {
  for (const DType dtype : kFloating) {
    for (const Layout layout : kLayouts) {
      poison();
      Generator generator;
      generator.set_state(kSeed, kOffset);
      const Tensor x = lay_out(random({37, 61}, dtype, 1), layout);
      const raw::DropoutResult got = raw::dropout(x, 0.25, generator);
      const std::vector<double> values = x.to_vector<double>();
      std::vector<double> mask;
      std::vector<double> expected;
      for (std::size_t i = 0; i < values.size(); ++i) {
        mask.push_back(word(kSeed, kOffset, i) >= 0x40000000U ? 1 : 0);
        expected.push_back(mask.back() * values[i] / 0.75);
      }
      EXPECT_EQ(got.mask.dtype(), DType::uint8);
      EXPECT_EQ(got.mask.to_vector<double>(), mask);
      // The scale and the product are rounded once each in the compute type, the result once more.
      EXPECT_EQ(difference(got.y, expected, 1.01 * epsilon(dtype) + 0x1p-23 * (dtype == DType::float64 ? 1e-8 : 1)),
                "");
      const Tensor grad = raw::dropout_grad(x, got.mask, 0.25);
      EXPECT_EQ(grad.to_vector<double>(), got.y.to_vector<double>());
    }
  }
}

TEST(Dropout, TheEndsOfTheRange) {
  Generator generator(5);
  const Tensor x = full({1000}, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(equal(raw::dropout(x, 0, generator).y, x));
  const raw::DropoutResult none = raw::dropout(x, 1, generator);  // zeros, not infinity times zero
  EXPECT_TRUE(equal(none.y, zeros({1000})));
  EXPECT_EQ(raw::dropout_grad(x, none.mask, 1).to_vector<float>(), std::vector<float>(1000, 0.0F));
  EXPECT_EQ(raw::dropout(empty({0, 2}), 0.5, generator).y.sizes(), Dims({0, 2}));
}

}  // namespace
}  // namespace ddp
