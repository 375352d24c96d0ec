// Reductions against the host: sums over every choice of dimensions with odd sizes, in one launch and in parts,
// largest elements, scattering. Whole numbers, so that every result is exact.
#include "ddp_kernels/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "memory.h"

namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the helpers of these tests
using ddp::DType;

DType sum_type(DType dtype) { return is_floating_point(dtype) ? dtype : DType::int64; }

/// Calls a reduction with the scratch memory it asks for. Returns how many bytes that were.
template <class Call>
std::size_t with_scratch(const Call& call) {
  std::size_t bytes = 0;
  EXPECT_EQ(call(nullptr, &bytes), cudaSuccess);
  if (bytes == 0) return 0;
  Memory scratch(DType::uint8, bytes);
  std::size_t given = bytes;
  EXPECT_EQ(call(scratch.data(), &given), cudaSuccess);
  EXPECT_EQ(given, bytes);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  return bytes;
}

/// x[a][b][c] with these strides in an array of `room` elements; its values by position.
struct Cube {
  std::int64_t sizes[3];
  std::int64_t strides[3];
  std::size_t offset;
  std::size_t room;
};

double value_at(std::int64_t a, std::int64_t b, std::int64_t c) { return (a * 5 + b * 7 + c) % 3 == 0 ? 1 : 0; }

void check_sum(const Cube& cube, DType dtype, int mask, bool accumulate) {
  Memory x(dtype, cube.room);
  std::vector<double> memory(cube.room, 77);
  std::int64_t out_sizes[3];
  for (int d = 0; d < 3; ++d) out_sizes[d] = ((mask >> d) & 1) != 0 ? 1 : cube.sizes[d];
  const auto results = static_cast<std::size_t>(out_sizes[0] * out_sizes[1] * out_sizes[2]);
  std::vector<double> expected(results, accumulate ? 3 : 0);
  for (std::int64_t a = 0; a < cube.sizes[0]; ++a) {
    for (std::int64_t b = 0; b < cube.sizes[1]; ++b) {
      for (std::int64_t c = 0; c < cube.sizes[2]; ++c) {
        const std::int64_t at = a * cube.strides[0] + b * cube.strides[1] + c * cube.strides[2];
        memory[cube.offset + static_cast<std::size_t>(at)] = value_at(a, b, c);
        const std::int64_t to =
            ((a % out_sizes[0]) * out_sizes[1] + b % out_sizes[1]) * out_sizes[2] + c % out_sizes[2];
        expected[static_cast<std::size_t>(to)] += value_at(a, b, c);
      }
    }
  }
  x.write_numbers(memory);
  Memory out(sum_type(dtype), results);
  if (accumulate) out.write_numbers(std::vector<double>(results, 3));
  with_scratch([&](void* scratch, std::size_t* bytes) {
    return k::sum(out.array(strides({out_sizes[1] * out_sizes[2], out_sizes[2], 1})),
                  sizes({out_sizes[0], out_sizes[1], out_sizes[2]}),
                  x.input(strides({cube.strides[0], cube.strides[1], cube.strides[2]}), cube.offset),
                  sizes({cube.sizes[0], cube.sizes[1], cube.sizes[2]}), type_of(dtype), accumulate, scratch, bytes,
                  nullptr);
  });
  ASSERT_EQ(out.numbers(), expected) << name(dtype) << " [" << cube.sizes[0] << ", " << cube.sizes[1] << ", "
                                     << cube.sizes[2] << "] mask " << mask << " from " << cube.offset;
}

Cube dense(std::int64_t a, std::int64_t b, std::int64_t c, std::size_t offset = 0) {
  return {{a, b, c}, {b * c, c, 1}, offset, static_cast<std::size_t>(a * b * c) + offset};
}

TEST(Sum, EveryChoiceOfDimensions) {
  // At most 256 ones are added up, which every type holds exactly.
  const Cube cubes[] = {dense(1, 1, 1),
                        dense(3, 4, 5),
                        dense(1, 7, 1),
                        dense(2, 33, 7),
                        dense(7, 2, 33),
                        dense(4, 8, 16),
                        dense(4, 8, 16, 3),
                        dense(2, 3, 64),
                        dense(5, 1, 97),
                        dense(64, 1, 8),
                        dense(2, 128, 2),
                        {{5, 6, 7}, {1, 5, 30}, 0, 210},           // column-major
                        {{5, 6, 7}, {84, 14, 2}, 1, 5 * 84 + 1}};  // every second
  for (const Cube& cube : cubes) {
    for (const DType dtype : kTypes) {
      for (int mask = 0; mask < 8; ++mask) {
        for (const bool accumulate : {false, true}) check_sum(cube, dtype, mask, accumulate);
      }
    }
  }
}

TEST(Sum, InPartsWithOddSizes) {
  // Long enough to be cut, along each dimension, from addresses that allow packs and from others.
  for (const Cube& cube : {dense(3, 1, 70001), dense(70001, 1, 3), dense(3, 70001, 1, 1), dense(9, 5, 7777),
                           dense(7777, 5, 8), dense(1, 1, 1 << 19), dense(1, 1, (1 << 19) + 13, 1)}) {
    for (const DType dtype : {DType::float32, DType::float64, DType::int32, DType::uint8}) {
      for (const int mask : {1, 2, 4, 5, 6, 7}) check_sum(cube, dtype, mask, mask == 5);
    }
  }
}

TEST(Sum, AsksForScratchMemoryOnlyWhenItIsLong) {
  const auto needed = [](std::int64_t rows, std::int64_t columns) {
    Memory x(DType::float32, static_cast<std::size_t>(rows * columns));
    Memory out(DType::float32, static_cast<std::size_t>(columns));
    return with_scratch([&](void* scratch, std::size_t* bytes) {
      return k::sum(out.array(strides({columns, 1})), sizes({1, columns}), x.input(strides({columns, 1})),
                    sizes({rows, columns}), k::Type::float32, false, scratch, bytes, nullptr);
    });
  };
  EXPECT_EQ(needed(64, 1024), 0U);  // the gradient of a bias
  EXPECT_EQ(needed(1, 10), 0U);
  EXPECT_NE(needed(100000, 32), 0U);
}

TEST(Max, EveryDimensionTiesAndNan) {
  for (const DType dtype : kTypes) {
    for (const auto& [a, b, c] : {std::array<std::int64_t, 3>{3, 4, 5}, {2, 300, 3}, {65, 2, 33}, {1, 1, 1000}}) {
      std::vector<double> values;
      for (std::int64_t i = 0; i < a * b * c; ++i) values.push_back(static_cast<double>((i * 7919) % 101));
      if (dtype == DType::boolean) {
        for (double& value : values) value = value > 50 ? 1 : 0;
      }
      Memory x(dtype, values.size());
      x.write_numbers(values);
      const std::int64_t size[] = {a, b, c};
      const std::int64_t step[] = {b * c, c, 1};
      for (int dim = 0; dim < 3; ++dim) {
        std::int64_t kept[] = {a, b, c};
        kept[dim] = 1;
        std::vector<double> best;
        std::vector<double> where;
        for (std::int64_t i = 0; i < kept[0]; ++i) {
          for (std::int64_t j = 0; j < kept[1]; ++j) {
            for (std::int64_t l = 0; l < kept[2]; ++l) {
              std::int64_t found = 0;
              const std::int64_t base = i * step[0] + j * step[1] + l * step[2];
              for (std::int64_t r = 1; r < size[dim]; ++r) {
                if (values[static_cast<std::size_t>(base + r * step[dim])] >
                    values[static_cast<std::size_t>(base + found * step[dim])]) {
                  found = r;
                }
              }
              best.push_back(values[static_cast<std::size_t>(base + found * step[dim])]);
              where.push_back(static_cast<double>(found));
            }
          }
        }
        Memory largest(dtype, best.size());
        Memory indices(DType::int64, best.size());
        const auto out = strides({kept[1] * kept[2], kept[2], 1});
        ASSERT_EQ(k::max(largest.array(out), indices.array(out), x.input(strides({step[0], step[1], step[2]})),
                         sizes({a, b, c}), dim, type_of(dtype), nullptr),
                  cudaSuccess);
        ASSERT_EQ(largest.numbers(), best) << name(dtype) << " dim " << dim;
        ASSERT_EQ(indices.numbers(), where) << name(dtype) << " dim " << dim;
      }
    }
  }
  const double nan = std::nan("");
  std::vector<double> values(700, 1);
  values[300] = nan;
  values[299] = std::numeric_limits<double>::infinity();
  values[650] = nan;
  Memory x(DType::float32, values.size());
  x.write_numbers(values);
  Memory largest(DType::float32, 1);
  Memory index(DType::int64, 1);
  ASSERT_EQ(k::max(largest.array(strides({1})), index.array(strides({1})), x.input(strides({1})), sizes({700}), 0,
                   k::Type::float32, nullptr),
            cudaSuccess);
  EXPECT_TRUE(std::isnan(largest.numbers()[0]));
  EXPECT_EQ(index.numbers()[0], 300);
}

TEST(ScatterByIndex, EveryTypeAndOutOfRange) {
  for (const DType dtype : kTypes) {
    Memory grad(dtype, 4);
    grad.write_numbers({1, 1, 1, 1});
    Memory indices(DType::int64, 4);
    indices.write_numbers({2, 0, 3, -1});
    Memory out(dtype, 12);
    out.write_numbers(std::vector<double>(12, 0));
    ASSERT_EQ(k::scatter_by_index(out.array(strides({3, 1})), sizes({4, 3}), 1, grad.input(strides({1, 1})),
                                  indices.input(strides({1, 1})), type_of(dtype), nullptr),
              cudaSuccess);
    auto got = out.numbers();
    for (const std::size_t i : {6U, 9U}) {
      EXPECT_TRUE(is_floating_point(dtype) ? std::isnan(got[i]) : got[i] == 0) << name(dtype);
      got[i] = 0;
    }
    EXPECT_EQ(got, (std::vector<double>{0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0})) << name(dtype);
  }
}

TEST(OfAll, SquaresAndNonFinite) {
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    for (const std::int64_t n : {1, 7, 1000, 32771, 700001}) {
      for (const std::size_t from : {0U, 1U}) {
        std::vector<double> values(static_cast<std::size_t>(n) + from);
        double squares = 0;
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] = static_cast<double>(i % 7) - 3;
          if (i >= from) squares += values[i] * values[i];
        }
        Memory x(dtype, values.size());
        x.write_numbers(values);
        Memory sum(DType::float64, 1);
        Memory count(DType::int64, 1);
        with_scratch([&](void* scratch, std::size_t* bytes) {
          return k::sum_of_squares(static_cast<double*>(sum.data()), x.input(strides({1}), from), sizes({n}),
                                   type_of(dtype), scratch, bytes, nullptr);
        });
        EXPECT_EQ(sum.numbers()[0], squares) << name(dtype) << " " << n;
        values.back() = std::nan("");
        values[from] = -std::numeric_limits<double>::infinity();
        x.write_numbers(values);
        with_scratch([&](void* scratch, std::size_t* bytes) {
          return k::count_nonfinite(static_cast<std::int64_t*>(count.data()), x.input(strides({1}), from), sizes({n}),
                                    type_of(dtype), scratch, bytes, nullptr);
        });
        EXPECT_EQ(count.numbers()[0], n == 1 ? 1 : 2) << name(dtype) << " " << n;
      }
    }
  }
}

}  // namespace
