// Element-by-element kernels and copies against the host: every type, strided, broadcast and at odd addresses, exact.
#include "ddp_kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ddp_kernels/copy.h"
#include "memory.h"

namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the helpers of these tests
using ddp::BFloat16;
using ddp::DType;
using ddp::Half;

TEST(Kernels, TypesAreNumberedAsDTypes) {
  EXPECT_EQ(type_of(DType::float32), k::Type::float32);
  EXPECT_EQ(type_of(DType::float64), k::Type::float64);
  EXPECT_EQ(type_of(DType::float16), k::Type::float16);
  EXPECT_EQ(type_of(DType::bfloat16), k::Type::bfloat16);
  EXPECT_EQ(type_of(DType::int32), k::Type::int32);
  EXPECT_EQ(type_of(DType::int64), k::Type::int64);
  EXPECT_EQ(type_of(DType::uint8), k::Type::uint8);
  EXPECT_EQ(type_of(DType::boolean), k::Type::boolean);
}

TEST(Fill, EveryTypeContiguous) {
  for (const DType dtype : kTypes) {
    Memory x(dtype, 1000);
    ASSERT_EQ(k::fill(x.array(strides({100, 1})), type_of(dtype), sizes({10, 100}), 3, nullptr), cudaSuccess);
    EXPECT_EQ(x.numbers(), std::vector<double>(1000, dtype == DType::boolean ? 1 : 3)) << name(dtype);
  }
}

TEST(Fill, StridedLeavesTheRest) {
  Memory x(DType::float32, 12);
  ASSERT_EQ(k::fill(x.array(strides({1})), k::Type::float32, sizes({12}), -1, nullptr), cudaSuccess);
  // The middle two columns of a 3 x 4 matrix.
  ASSERT_EQ(k::fill(x.array(strides({4, 1}), 1), k::Type::float32, sizes({3, 2}), 5, nullptr), cudaSuccess);
  EXPECT_EQ(x.numbers(), (std::vector<double>{-1, 5, 5, -1, -1, 5, 5, -1, -1, 5, 5, -1}));
}

TEST(Fill, NoElementsAndBadSizes) {
  EXPECT_EQ(k::fill({}, k::Type::float32, sizes({3, 0}), 1, nullptr), cudaSuccess);
  EXPECT_EQ(k::fill({}, k::Type::float32, sizes({-1}), 1, nullptr), cudaErrorInvalidValue);
}

TEST(Fill, NoDimensionsIsOneElement) {
  Memory x(DType::int64, 2);
  x.write_numbers({7, 7});
  ASSERT_EQ(k::fill(x.array(strides({})), k::Type::int64, sizes({}), 1, nullptr), cudaSuccess);
  EXPECT_EQ(x.numbers(), (std::vector<double>{1, 7}));
}

TEST(Copy, EveryPairOfTypes) {
  const std::vector<double> values{0, 1, 2, 3, 100, 127};  // exact in every type but bool
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      Memory source(from, values.size());
      source.write_numbers(values);
      Memory destination(to, values.size());
      ASSERT_EQ(k::copy(destination.array(strides({1})), type_of(to), source.input(strides({1})), type_of(from),
                        sizes({6}), nullptr),
                cudaSuccess);
      const bool truth = from == DType::boolean || to == DType::boolean;
      EXPECT_EQ(destination.numbers(), truth ? std::vector<double>({0, 1, 1, 1, 1, 1}) : values)
          << name(from) << " to " << name(to);
    }
  }
}

TEST(Copy, RoundsToNearestEvenAsTheHostDoes) {
  const std::vector<float> values{1.0F + 0x1p-11F, 1.0F + 0x3p-11F, 1.0F + 0x1p-8F, 1.0F + 0x3p-8F, 65519.0F,
                                  65520.0F,        0x1p-25F,        0x3p-26F,       -2.7182818F};
  Memory source(DType::float32, values.size());
  source.write(values);
  Memory half(DType::float16, values.size());
  Memory brain(DType::bfloat16, values.size());
  const auto shape = sizes({static_cast<std::int64_t>(values.size())});
  ASSERT_EQ(
      k::copy(half.array(strides({1})), k::Type::float16, source.input(strides({1})), k::Type::float32, shape, nullptr),
      cudaSuccess);
  ASSERT_EQ(k::copy(brain.array(strides({1})), k::Type::bfloat16, source.input(strides({1})), k::Type::float32, shape,
                    nullptr),
            cudaSuccess);
  const auto halves = half.read<std::uint16_t>();
  const auto brains = brain.read<std::uint16_t>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(halves[i], Half(values[i]).bits) << values[i];
    EXPECT_EQ(brains[i], BFloat16(values[i]).bits) << values[i];
  }
}

TEST(Copy, TransposesAndBroadcasts) {
  Memory source(DType::int32, 6);
  source.write_numbers({1, 2, 3, 4, 5, 6});
  Memory transposed(DType::float32, 6);  // 3 x 2 from 2 x 3
  ASSERT_EQ(k::copy(transposed.array(strides({2, 1})), k::Type::float32, source.input(strides({1, 3})), k::Type::int32,
                    sizes({3, 2}), nullptr),
            cudaSuccess);
  EXPECT_EQ(transposed.numbers(), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  Memory repeated(DType::int32, 6);  // its first row, twice
  ASSERT_EQ(k::copy(repeated.array(strides({3, 1})), k::Type::int32, source.input(strides({0, 1})), k::Type::int32,
                    sizes({2, 3}), nullptr),
            cudaSuccess);
  EXPECT_EQ(repeated.numbers(), (std::vector<double>{1, 2, 3, 1, 2, 3}));
}

TEST(Copy, EightDimensions) {
  std::vector<double> values(256);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  Memory source(DType::int64, 256);
  source.write_numbers(values);
  Memory reversed(DType::int64, 256);
  // All eight dimensions of size 2 in reverse order: the bits of the index are mirrored.
  ASSERT_EQ(k::copy(reversed.array(strides({128, 64, 32, 16, 8, 4, 2, 1})), k::Type::int64,
                    source.input(strides({1, 2, 4, 8, 16, 32, 64, 128})), k::Type::int64,
                    sizes({2, 2, 2, 2, 2, 2, 2, 2}), nullptr),
            cudaSuccess);
  const auto result = reversed.numbers();
  for (unsigned i = 0; i < 256; ++i) {
    unsigned mirrored = 0;
    for (unsigned bit = 0; bit < 8; ++bit) mirrored |= ((i >> bit) & 1U) << (7 - bit);
    ASSERT_EQ(result[i], mirrored) << i;
  }
}

TEST(Copy, MoreElementsThanOneGridHoldsThreads) {
  constexpr std::int64_t kCount = 3'000'001;
  Memory source(DType::int32, kCount);
  std::vector<std::int32_t> values(kCount);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i);
  source.write(values);
  Memory destination(DType::int64, kCount);
  ASSERT_EQ(k::copy(destination.array(strides({1})), k::Type::int64, source.input(strides({1})), k::Type::int32,
                    sizes({kCount}), nullptr),
            cudaSuccess);
  const auto result = destination.read<std::int64_t>();
  for (std::size_t i = 0; i < result.size(); ++i) ASSERT_EQ(result[i], static_cast<std::int64_t>(i));
}

TEST(Add, EveryTypeWithAlpha) {
  for (const DType dtype : kTypes) {
    Memory a(dtype, 4);
    Memory b(dtype, 4);
    Memory out(dtype, 4);
    a.write_numbers({1, 2, 3, 40});
    b.write_numbers({5, 6, 7, 8});
    const cudaError_t error = k::add_scaled(out.array(strides({1})), a.input(strides({1})), b.input(strides({1})), 2,
                                            sizes({4}), type_of(dtype), nullptr);
    if (dtype == DType::boolean) {
      EXPECT_EQ(error, cudaErrorInvalidValue);
      continue;
    }
    ASSERT_EQ(error, cudaSuccess);
    EXPECT_EQ(out.numbers(), (std::vector<double>{11, 14, 17, 56})) << name(dtype);
  }
}

TEST(Add, InPlaceWithARowForAllRows) {
  Memory y(DType::float32, 6);
  Memory row(DType::float32, 3);
  y.write_numbers({1, 2, 3, 4, 5, 6});
  row.write_numbers({10, 20, 30});
  ASSERT_EQ(k::add_scaled(y.array(strides({3, 1})), y.input(strides({3, 1})), row.input(strides({0, 1})), 1,
                          sizes({2, 3}), k::Type::float32, nullptr),
            cudaSuccess);
  EXPECT_EQ(y.numbers(), (std::vector<double>{11, 22, 33, 14, 25, 36}));
}

TEST(Add, HalfIsAddedInFloatAndRoundedOnce) {
  Memory a(DType::float16, 1);
  Memory b(DType::float16, 1);
  a.write_numbers({2048});
  b.write_numbers({1});
  Memory out(DType::float16, 1);
  // 2048 + 3*1 = 2051 lies between 2050 and 2052 in float16: a tie, to even.
  ASSERT_EQ(k::add_scaled(out.array(strides({1})), a.input(strides({1})), b.input(strides({1})), 3, sizes({1}),
                          k::Type::float16, nullptr),
            cudaSuccess);
  EXPECT_EQ(out.numbers(), std::vector<double>{2052});
}

// Sizes around those of a pack and of a block, from addresses that allow packs and from ones that do not.
constexpr std::int64_t kOddSizes[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 127, 128, 129, 511, 1000, 1025, 4099};

TEST(OddSizes, FillWritesWhatItShouldAndNothingElse) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t n : kOddSizes) {
      for (const std::size_t from : {0U, 1U, 3U, 16U}) {
        Memory x(dtype, static_cast<std::size_t>(n) + 20);
        x.write_numbers(std::vector<double>(static_cast<std::size_t>(n) + 20, 0));
        ASSERT_EQ(k::fill(x.array(strides({1}), from), type_of(dtype), sizes({n}), 1, nullptr), cudaSuccess);
        std::vector<double> expected(static_cast<std::size_t>(n) + 20, 0);
        for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) expected[from + i] = 1;
        ASSERT_EQ(x.numbers(), expected) << name(dtype) << " " << n << " from " << from;
      }
    }
  }
}

TEST(OddSizes, CopyConvertAddAndCompare) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t n : kOddSizes) {
      for (const std::size_t from : {0U, 1U, 16U}) {
        const auto count = static_cast<std::size_t>(n);
        std::vector<double> values(count + 16);
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] = static_cast<double>(dtype == DType::boolean ? i % 2 : i % 50);
        }
        Memory source(dtype, count + 16);
        source.write_numbers(values);
        const std::vector<double> part(values.begin() + static_cast<std::ptrdiff_t>(from),
                                       values.begin() + static_cast<std::ptrdiff_t>(from + count));
        Memory same(dtype, count);
        ASSERT_EQ(k::copy(same.array(strides({1})), type_of(dtype), source.input(strides({1}), from), type_of(dtype),
                          sizes({n}), nullptr),
                  cudaSuccess);
        ASSERT_EQ(same.numbers(), part) << name(dtype) << " " << n << " from " << from;
        const DType other = dtype == DType::float32 ? DType::bfloat16 : DType::float32;
        Memory converted(other, count);
        ASSERT_EQ(k::copy(converted.array(strides({1})), type_of(other), source.input(strides({1}), from),
                          type_of(dtype), sizes({n}), nullptr),
                  cudaSuccess);
        ASSERT_EQ(converted.numbers(), part) << name(dtype) << " " << n << " from " << from;
        Memory equal(DType::boolean, count);
        ASSERT_EQ(k::equal_elements(equal.array(strides({1})), source.input(strides({1}), from),
                                    same.input(strides({1})), sizes({n}), type_of(dtype), nullptr),
                  cudaSuccess);
        ASSERT_EQ(equal.numbers(), std::vector<double>(count, 1)) << name(dtype) << " " << n << " from " << from;
        if (dtype == DType::boolean) continue;
        ASSERT_EQ(k::add_scaled(same.array(strides({1})), same.input(strides({1})), source.input(strides({1}), from), 1,
                                sizes({n}), type_of(dtype), nullptr),
                  cudaSuccess);
        std::vector<double> twice = part;
        for (double& value : twice) value *= 2;
        ASSERT_EQ(same.numbers(), twice) << name(dtype) << " " << n << " from " << from;
      }
    }
  }
}

TEST(Unary, EveryOperationOnOddSizes) {
  const std::vector<double> values{0.25, 1, 4, 0.0625, 16};
  const auto expected = [](k::Unary op, double x) {
    switch (op) {
      case k::Unary::neg:
        return -x;
      case k::Unary::sqrt:
        return std::sqrt(x);
      case k::Unary::reciprocal:
        return 1 / x;
      case k::Unary::square:
        return x * x;
      default:
        return x;  // relu, abs
    }
  };
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    for (const k::Unary op : {k::Unary::neg, k::Unary::relu, k::Unary::sqrt, k::Unary::reciprocal, k::Unary::abs,
                              k::Unary::square}) {  // exact for these values in every type
      for (const std::int64_t n : {1, 5, 130, 1029}) {
        std::vector<double> in;
        std::vector<double> out;
        for (std::int64_t i = 0; i < n; ++i) {
          in.push_back(values[static_cast<std::size_t>(i) % values.size()]);
          out.push_back(expected(op, in.back()));
        }
        Memory x(dtype, in.size());
        x.write_numbers(in);
        Memory y(dtype, in.size());
        ASSERT_EQ(k::unary(op, y.array(strides({1})), x.input(strides({1})), sizes({n}), type_of(dtype), nullptr),
                  cudaSuccess);
        ASSERT_EQ(y.numbers(), out) << name(dtype) << " operation " << static_cast<int>(op);
      }
    }
  }
  EXPECT_EQ(k::unary(k::Unary::exp, {}, {}, sizes({0}), k::Type::int32, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(k::unary(k::Unary::exp, {}, {}, sizes({0}), k::Type::float32, nullptr), cudaSuccess);
}

TEST(Binary, BroadcastRowsAndColumnsInPacks) {
  // Row and column vectors against a matrix whose rows are whole packs.
  Memory a(DType::float32, 3 * 8);
  Memory row(DType::float32, 8);
  Memory column(DType::float32, 3);
  std::vector<double> sum;
  std::vector<double> product;
  std::vector<double> numbers;
  for (int i = 0; i < 24; ++i) {
    numbers.push_back(i);
    sum.push_back(i + 100 * (i % 8));
    product.push_back(i * (i / 8 + 2));
  }
  a.write_numbers(numbers);
  row.write_numbers({0, 100, 200, 300, 400, 500, 600, 700});
  column.write_numbers({2, 3, 4});
  Memory out(DType::float32, 24);
  ASSERT_EQ(k::binary(k::Binary::add, out.array(strides({8, 1})), a.input(strides({8, 1})), row.input(strides({0, 1})),
                      sizes({3, 8}), k::Type::float32, nullptr),
            cudaSuccess);
  EXPECT_EQ(out.numbers(), sum);
  ASSERT_EQ(k::binary(k::Binary::mul, out.array(strides({8, 1})), a.input(strides({8, 1})),
                      column.input(strides({1, 0})), sizes({3, 8}), k::Type::float32, nullptr),
            cudaSuccess);
  EXPECT_EQ(out.numbers(), product);
  ASSERT_EQ(k::binary_scalar(k::Binary::sub, out.array(strides({8, 1})), a.input(strides({8, 1})), 1, true,
                             sizes({3, 8}), k::Type::float32, nullptr),
            cudaSuccess);
  for (double& number : numbers) number = 1 - number;
  EXPECT_EQ(out.numbers(), numbers);
}

TEST(Copy, TransposesInTiles) {
  for (const DType dtype : {DType::uint8, DType::bfloat16, DType::float32, DType::float64}) {
    for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{33, 65}, {8, 8}, {100, 31}, {7, 64}}) {
      constexpr std::int64_t kBatch = 3;
      const std::int64_t matrix = rows * columns;
      std::vector<double> values;
      std::vector<double> expected(static_cast<std::size_t>(kBatch * matrix));
      for (std::int64_t b = 0; b < kBatch; ++b) {
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t c = 0; c < columns; ++c) {
            values.push_back(static_cast<double>((b * 31 + r * 7 + c * 3) % 101));
            expected[static_cast<std::size_t>(b * matrix + c * rows + r)] = values.back();
          }
        }
      }
      Memory source(dtype, values.size());
      source.write_numbers(values);
      Memory out(dtype, values.size());
      ASSERT_EQ(
          k::copy(out.array(strides({matrix, rows, 1})), type_of(dtype), source.input(strides({matrix, 1, columns})),
                  type_of(dtype), sizes({kBatch, columns, rows}), nullptr),
          cudaSuccess);
      ASSERT_EQ(out.numbers(), expected) << name(dtype) << " " << rows << " x " << columns;
    }
  }
}

TEST(IndexRows, EveryWidthAndOutOfRange) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t width : {1, 3, 4, 8, 32, 33}) {
      const auto n = static_cast<std::size_t>(width);
      std::vector<double> values(5 * n);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<double>(dtype == DType::boolean ? i % 2 : i % 100 + 1);
      }
      Memory x(dtype, values.size());
      x.write_numbers(values);
      Memory index(DType::int64, 8);  // every second one
      index.write_numbers({4, 9, 0, 9, -1, 9, 5, 9});
      Memory out(dtype, 4 * n);
      ASSERT_EQ(
          k::index_rows(out.data(), x.data(), type_of(dtype), 5, width * static_cast<std::int64_t>(ddp::size_of(dtype)),
                        static_cast<const std::int64_t*>(index.data()), 2, 4, nullptr),
          cudaSuccess);
      const auto got = out.numbers();
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_EQ(got[i], values[4 * n + i]) << name(dtype) << " " << width;
        ASSERT_EQ(got[n + i], values[i]) << name(dtype) << " " << width;
        for (const std::size_t row : {2U, 3U}) {
          if (is_floating_point(dtype)) {
            ASSERT_TRUE(std::isnan(got[row * n + i])) << name(dtype) << " " << width;
          } else {
            ASSERT_EQ(got[row * n + i], 0) << name(dtype) << " " << width;
          }
        }
      }
    }
  }
}

}  // namespace
