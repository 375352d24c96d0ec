// Row look-up, its counting sort and the gradient, exact on whole numbers.
#include "ddp_kernels/embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>

#include "memory.h"

namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): what kernel tests share
using ddp::DType;
using Index = std::vector<std::int64_t>;

constexpr DType kFloating[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16};

const std::int64_t* places(const Memory& memory) { return static_cast<const std::int64_t*>(memory.data()); }

/// Mostly inside, some far and near outside; with `one` row 0 has half of the places.
Index random_index(std::int64_t rows, std::int64_t count, bool one) {
  std::mt19937 engine(static_cast<unsigned>(rows * 31 + count));
  Index index(static_cast<std::size_t>(count));
  for (auto& value : index) {
    value = static_cast<std::int64_t>(engine() % static_cast<unsigned>(rows));
    const unsigned kind = engine() % 20;
    if (one && kind % 2 == 0) value = 0;
    if (kind == 1) value = -1;
    if (kind == 3) value = rows;
    if (kind == 5) value = INT64_MAX;
    if (kind == 7) value = INT64_MIN;
  }
  return index;
}

constexpr std::pair<std::int64_t, std::int64_t> kShapes[] = {{1, 1},     {3, 40},   {127, 31},    {128, 513},
                                                             {129, 511}, {300, 64}, {700, 5'000}, {2, 9'001}};

TEST(SortIndicesKernel, PlacesOfEachRowInOrder) {
  for (const auto& [rows, count] : kShapes) {
    for (const bool one : {false, true}) {
      const Index index = random_index(rows, count, one);
      Memory at(DType::int64, index.size());
      at.write(index);
      Memory offsets(DType::int64, static_cast<std::size_t>(rows) + 1);
      Memory positions(DType::int64, index.size());
      ASSERT_EQ(k::sort_indices(static_cast<std::int64_t*>(offsets.data()),
                                static_cast<std::int64_t*>(positions.data()), places(at), count, rows, nullptr),
                cudaSuccess);
      Index expected_offsets{0};
      Index expected;
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::size_t i = 0; i < index.size(); ++i) {
          if (index[i] == r) expected.push_back(static_cast<std::int64_t>(i));
        }
        expected_offsets.push_back(static_cast<std::int64_t>(expected.size()));
      }
      EXPECT_EQ(offsets.read<std::int64_t>(), expected_offsets) << rows << " rows, " << count << " indices";
      Index got = positions.read<std::int64_t>();
      got.resize(expected.size());  // those out of range are left out
      EXPECT_EQ(got, expected) << rows << " rows, " << count << " indices";
    }
  }
}

TEST(EmbeddingKernel, RowsOfAStridedTable) {
  for (const DType dtype : kFloating) {
    const Index index{2, 0, -1, 4, 1, 5, INT64_MAX, 3, 3};
    for (const std::int64_t width : {1, 7, 33, 200}) {
      const std::int64_t rows = 5;
      std::vector<double> numbers(static_cast<std::size_t>(rows * width));
      for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i % 120);
      Memory table(dtype, numbers.size());
      table.write_numbers(numbers);
      Memory at(DType::int64, index.size());
      at.write(index);
      Memory out(dtype, index.size() * static_cast<std::size_t>(width));
      ASSERT_EQ(k::embedding(out.data(), table.data(), {rows, width, 1, rows}, type_of(dtype), places(at),
                             static_cast<std::int64_t>(index.size()), nullptr),
                cudaSuccess);
      const auto got = out.numbers();
      for (std::size_t i = 0; i < got.size(); ++i) {
        const std::int64_t row = index[i / static_cast<std::size_t>(width)];
        const auto column = static_cast<std::int64_t>(i % static_cast<std::size_t>(width));
        if (row < 0 || row >= rows) {
          ASSERT_TRUE(std::isnan(got[i])) << i;
        } else {
          ASSERT_EQ(got[i], numbers[static_cast<std::size_t>(row + column * rows)]) << i;
        }
      }
    }
  }
}

TEST(EmbeddingKernel, GradientSumsAndAdds) {
  for (const DType dtype : kFloating) {
    for (const auto& [rows, count] : kShapes) {
      // Sums of ones stay exact in the narrow types; with more than 64 places warps share a row.
      if (count > 600 && ddp::size_of(dtype) == 2) continue;
      for (const std::int64_t width : {1, 33}) {
        for (const bool turned : {false, true}) {
          for (const bool accumulate : {false, true}) {
            const Index index = random_index(rows, count, count < 600);
            Memory at(DType::int64, index.size());
            at.write(index);
            Memory offsets(DType::int64, static_cast<std::size_t>(rows) + 1);
            Memory positions(DType::int64, index.size());
            ASSERT_EQ(k::sort_indices(static_cast<std::int64_t*>(offsets.data()),
                                      static_cast<std::int64_t*>(positions.data()), places(at), count, rows, nullptr),
                      cudaSuccess);
            std::vector<double> grads(static_cast<std::size_t>(count * width));
            for (std::size_t i = 0; i < grads.size(); ++i) grads[i] = i % 5 == 0 ? -1.0 : 0.5;
            Memory grad(dtype, grads.size());
            grad.write_numbers(grads);
            const k::Table shape{rows, width, turned ? 1 : width, turned ? rows : 1};
            std::vector<double> expected(static_cast<std::size_t>(rows * width));
            Memory table(dtype, expected.size());
            if (accumulate) {
              std::fill(expected.begin(), expected.end(), 2.0);
              table.write_numbers(expected);
            }
            for (std::size_t i = 0; i < grads.size(); ++i) {
              const std::int64_t row = index[i / static_cast<std::size_t>(width)];
              const auto column = static_cast<std::int64_t>(i % static_cast<std::size_t>(width));
              if (row < 0 || row >= rows) continue;
              expected[static_cast<std::size_t>(row * shape.row_stride + column * shape.column_stride)] += grads[i];
            }
            ASSERT_EQ(k::embedding_grad(table.data(), shape, type_of(dtype), grad.data(), places(offsets),
                                        places(positions), accumulate, nullptr),
                      cudaSuccess);
            const auto got = table.numbers();
            for (std::size_t i = 0; i < got.size(); ++i) {
              ASSERT_EQ(got[i], expected[i])
                  << name(dtype) << ", " << rows << " rows, " << count << " indices, width " << width
                  << (turned ? ", turned" : "") << (accumulate ? ", added" : "") << ", element " << i;
            }
          }
        }
      }
    }
  }
}

TEST(EmbeddingKernel, NothingAndWhatIsNotTaken) {
  EXPECT_EQ(k::embedding(nullptr, nullptr, {3, 0, 0, 1}, k::Type::float32, nullptr, 4, nullptr), cudaSuccess);
  EXPECT_EQ(k::embedding(nullptr, nullptr, {3, 2, 2, 1}, k::Type::int32, nullptr, 4, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(k::sort_indices(nullptr, nullptr, nullptr, 4, 0, nullptr), cudaSuccess);
  EXPECT_EQ(k::sort_indices(nullptr, nullptr, nullptr, -1, 2, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(k::embedding_grad(nullptr, {0, 4, 4, 1}, k::Type::float32, nullptr, nullptr, nullptr, true, nullptr),
            cudaSuccess);
}

}  // namespace
