// Random numbers and dropout against a Philox of the test's own; arrays of odd sizes at odd offsets.
#include "ddp_kernels/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "memory.h"

namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): what kernel tests share
using ddp::DType;

/// Number k of a generator, in the words of Salmon et al. (SC 2011).
std::uint32_t number(const k::Philox& state, std::uint64_t k) {
  const std::uint64_t block = state.block + k / 4;
  std::array<std::uint32_t, 4> c = {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32U), 0, 0};
  std::array<std::uint32_t, 2> key = {static_cast<std::uint32_t>(state.seed),
                                      static_cast<std::uint32_t>(state.seed >> 32U)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * c[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * c[2];
    c = {static_cast<std::uint32_t>(b >> 32U) ^ c[1] ^ key[0], static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32U) ^ c[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9U, key[1] + 0xBB67AE85U};
  }
  return c[k % 4];
}
std::uint64_t wide(const k::Philox& state, std::uint64_t i) {
  return (std::uint64_t{number(state, 2 * i)} << 32U) | number(state, 2 * i + 1);
}

constexpr std::int64_t kCounts[] = {1, 2, 3, 5, 8, 511, 1030};
constexpr k::Philox kStates[] = {{0, 0}, {0xdeadbeef12345678U, 0xffffffffU}, {~std::uint64_t{0}, ~std::uint64_t{0}}};

TEST(Philox, KnownAnswers) {  // of the authors' test vectors: counter and key all 0
  const k::Philox zero;
  EXPECT_EQ(number(zero, 0), 0x6627e8d5U);
  EXPECT_EQ(number(zero, 1), 0xe169c58dU);
  EXPECT_EQ(number(zero, 2), 0xbc57ac4cU);
  EXPECT_EQ(number(zero, 3), 0x9b00dbd8U);
}

TEST(RandomKernel, UniformFloats) {
  for (const k::Philox& state : kStates) {
    for (const std::int64_t count : kCounts) {
      for (const std::size_t offset : {0U, 1U}) {
        Memory x(DType::float32, static_cast<std::size_t>(count) + 2);
        Memory d(DType::float64, static_cast<std::size_t>(count) + 2);
        ASSERT_EQ(k::uniform(x.at(offset), k::Type::float32, count, 0, 1, 1 - 0x1p-24, state, nullptr), cudaSuccess);
        ASSERT_EQ(k::uniform(d.at(offset), k::Type::float64, count, 0, 1, 1 - 0x1p-53, state, nullptr), cudaSuccess);
        const auto floats = x.read<float>();
        const auto doubles = d.read<double>();
        for (std::int64_t i = 0; i < count; ++i) {
          const auto n = static_cast<std::uint64_t>(i);
          ASSERT_EQ(floats[n + offset], static_cast<float>(number(state, n) >> 8U) * 0x1p-24F) << count << " " << i;
          ASSERT_EQ(doubles[n + offset], static_cast<double>(wide(state, n) >> 11U) * 0x1p-53) << count << " " << i;
        }
        const auto bytes = x.read<std::uint8_t>();
        for (std::size_t b = 0; b < 4; ++b) {
          EXPECT_EQ(bytes[bytes.size() - 1 - b], 0xA5);
          if (offset == 1) {
            EXPECT_EQ(bytes[b], 0xA5);
          }
        }
      }
    }
  }
}

TEST(RandomKernel, NarrowFloatsStayBelowTheEnd) {
  for (const DType dtype : {DType::float16, DType::bfloat16}) {
    const double largest = dtype == DType::float16 ? 1 - 0x1p-11 : 1 - 0x1p-8;
    const unsigned bits = dtype == DType::float16 ? 11 : 8;
    Memory x(dtype, 1001);
    ASSERT_EQ(k::uniform(x.data(), type_of(dtype), 1001, 0, 1, largest, kStates[1], nullptr), cudaSuccess);
    const auto values = x.numbers();
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], std::ldexp(number(kStates[1], i) >> (32 - bits), -static_cast<int>(bits))) << i;
    }
    // Rounds to the end, which is not in the range.
    ASSERT_EQ(k::uniform(x.data(), type_of(dtype), 1001, 256, 257, 256, kStates[1], nullptr), cudaSuccess);
    for (const double value : x.numbers()) ASSERT_LE(value, 256);
  }
}

TEST(RandomKernel, Normal) {
  for (const k::Philox& state : kStates) {
    for (const std::int64_t count : kCounts) {
      Memory x(DType::float64, static_cast<std::size_t>(count));
      ASSERT_EQ(k::normal(x.data(), k::Type::float64, count, 1, 3, state, nullptr), cudaSuccess);
      const auto values = x.read<double>();
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint64_t pair = i / 2 * 2;
        const double radius = std::sqrt(-2 * std::log((number(state, pair) + 1.0) * 0x1p-32));
        const double angle = number(state, pair + 1) * (0x1p-32 * 6.283185307179586477);
        const double expected = 1 + 3 * radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
        ASSERT_NEAR(values[i], expected, 3e-14) << count << " " << i;  // some units of 2^-52 of numbers up to 21
      }
    }
  }
}

TEST(RandomKernel, WholeNumbersOfEveryType) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t count : kCounts) {
      const std::uint64_t range = dtype == DType::boolean ? 2 : 101;
      Memory x(dtype, static_cast<std::size_t>(count));
      ASSERT_EQ(k::randint(x.data(), type_of(dtype), count, 0, range, kStates[1], nullptr), cudaSuccess);
      const auto values = x.numbers();
      for (std::size_t i = 0; i < values.size(); ++i) {
        // floor(r * range / 2^64) in two halves: range is small.
        const std::uint64_t r = wide(kStates[1], i);
        const std::uint64_t expected = ((r >> 32U) * range + (((r & 0xffffffffU) * range) >> 32U)) >> 32U;
        ASSERT_EQ(values[i], static_cast<double>(expected)) << name(dtype) << " " << i;
      }
    }
  }
}

TEST(DropoutKernel, ForwardAndGradient) {
  constexpr std::uint64_t kThreshold = 0x40000000U;  // a quarter
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    for (const std::int64_t rows : {1, 3, 37}) {
      for (const bool turned : {false, true}) {
        for (const std::size_t offset : {0U, 1U}) {
          const std::int64_t columns = 11;
          const auto count = static_cast<std::size_t>(rows * columns);
          std::vector<double> numbers(count + offset);
          for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i % 97) - 40;
          Memory x(dtype, count + offset);
          x.write_numbers(numbers);
          Memory y(dtype, count + offset);
          Memory mask(DType::uint8, count + offset);
          const k::Sizes shape = sizes({rows, columns});
          const k::Strided at = turned ? strides({1, rows}) : strides({columns, 1});
          const k::Strided dense = strides({columns, 1});
          ASSERT_EQ(k::dropout(y.at(offset), static_cast<std::uint8_t*>(mask.at(offset)), x.input(at, offset), shape,
                               type_of(dtype), kThreshold, 2, kStates[2], nullptr),
                    cudaSuccess);
          const auto kept = mask.read<std::uint8_t>();
          const auto dropped = y.numbers();
          Memory grad(dtype, count + offset);
          ASSERT_EQ(k::dropout_grad(grad.array(dense, offset), x.input(at, offset), mask.input(dense, offset), shape,
                                    type_of(dtype), 4, nullptr),
                    cudaSuccess);
          const auto grads = grad.numbers();
          for (std::size_t i = 0; i < count; ++i) {
            const std::size_t row = i / static_cast<std::size_t>(columns);
            const std::size_t column = i % static_cast<std::size_t>(columns);
            const double value = numbers[offset + (turned ? row + column * static_cast<std::size_t>(rows) : i)];
            const bool keep = number(kStates[2], i) >= kThreshold;
            ASSERT_EQ(kept[i + offset], keep ? 1 : 0) << i;
            ASSERT_EQ(dropped[i + offset], keep ? value * 2 : 0) << name(dtype) << " " << i;
            ASSERT_EQ(grads[i + offset], keep ? value * 4 : 0) << name(dtype) << " " << i;
          }
        }
      }
    }
  }
}

TEST(RandomKernel, NothingAndWhatIsNotTaken) {
  EXPECT_EQ(k::uniform(nullptr, k::Type::float32, 0, 0, 1, 1, {}, nullptr), cudaSuccess);
  EXPECT_EQ(k::uniform(nullptr, k::Type::int32, 1, 0, 1, 1, {}, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(k::normal(nullptr, k::Type::float32, -1, 0, 1, {}, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(k::randint(nullptr, k::Type::int64, 0, 0, 1, {}, nullptr), cudaSuccess);
  EXPECT_EQ(k::dropout(nullptr, nullptr, {}, sizes({0}), k::Type::float32, 0, 1, {}, nullptr), cudaSuccess);
  EXPECT_EQ(k::dropout_grad({}, {}, {}, sizes({3, 0}), k::Type::float32, 1, nullptr), cudaSuccess);
}

}  // namespace
