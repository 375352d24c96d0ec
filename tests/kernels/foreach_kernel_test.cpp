// The kernels over many arrays, on numbers that every type holds exactly; addresses of every alignment.
#include "ddp_kernels/foreach.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "memory.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the helpers of these tests

constexpr DType kFloats[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16};
// Around the pieces that blocks work on, and a tail behind the last pack of every type.
constexpr std::size_t kCounts[] = {1, 3, 8, 255, 2047, 2048, 2049, 4096, 5003};

/// An array on the device with one element before and two behind it that must stay as they are.
struct Guarded {
  Guarded(DType dtype, std::size_t count, std::size_t from, double (*value)(std::size_t))
      : from_(from), count_(count), memory_(dtype, count + from + 2) {
    for (std::size_t i = 0; i < count + from + 2; ++i)
      all_.push_back(i < from || i >= from + count ? 77 : value(i - from));
    memory_.write_numbers(all_);
  }
  void* data() const { return memory_.at(from_); }
  double before(std::size_t i) const { return all_[from_ + i]; }
  /// The numbers now; what lies around them is checked.
  std::vector<double> numbers() const {
    const std::vector<double> all = memory_.numbers();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool around = i < from_ || i >= from_ + count_;
      EXPECT_TRUE(!around || all[i] == 77) << "element " << i << " around the array is " << all[i];
    }
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(from_);
    return {first, first + static_cast<std::ptrdiff_t>(count_)};
  }

 private:
  std::size_t from_;
  std::size_t count_;
  std::vector<double> all_;
  Memory memory_;
};

double parameter_at(std::size_t i) { return static_cast<double>(i % 13); }
double gradient_at(std::size_t i) { return i % 5 < 2 ? -1.0 - static_cast<double>(i % 5) : static_cast<double>(i % 5); }
double state_at(std::size_t i) { return static_cast<double>(i % 3); }

struct Parameter {
  Parameter(DType dtype_of, std::size_t count_of, std::size_t from)
      : dtype(dtype_of),
        count(count_of),
        parameter(dtype, count, from, parameter_at),
        gradient(dtype, count, from, gradient_at),
        state0(dtype, count, from, state_at),
        state1(dtype, count, from, state_at) {}
  k::UpdateChunk chunk() const {
    return {.parameter = parameter.data(),
            .gradient = gradient.data(),
            .state0 = state0.data(),
            .state1 = state1.data(),
            .refusal = nullptr,
            .refused = nullptr,
            .numel = static_cast<std::int64_t>(count),
            .rate = -0.5,
            .root = 1,
            .first_block = -1,
            .type = type_of(dtype),
            .first = false,
            .packed = false};
  }
  DType dtype;
  std::size_t count;
  Guarded parameter, gradient, state0, state1;
};

/// All types, sizes and alignments in one table, refused and not.
class Update : public ::testing::Test {
 protected:
  void SetUp() override {
    words_.write(std::vector<std::uint32_t>{0, 4});
    counts_.write(std::vector<std::uint32_t>(kParameters, 7));
    for (const DType dtype : kFloats) {
      for (const std::size_t count : kCounts) {
        const std::size_t from = parameters_.size() % 2 == 0 ? 0 : 1;
        parameters_.push_back(std::make_unique<Parameter>(dtype, count, from));
        k::UpdateChunk chunk = parameters_.back()->chunk();
        const std::size_t number = parameters_.size();
        chunk.first = number % 5 == 0;
        if (number % 4 == 1) chunk.refusal = static_cast<std::uint32_t*>(words_.data());
        if (number % 4 == 2) chunk.refusal = static_cast<std::uint32_t*>(words_.data()) + 1;
        if (number % 8 != 6) chunk.refused = static_cast<std::uint32_t*>(counts_.data()) + number - 1;
        table_->chunks[table_->count++] = chunk;
      }
    }
    k::plan(*table_);
  }
  bool refused(std::size_t parameter) const { return (parameter + 1) % 4 == 2; }
  bool first(std::size_t parameter) const { return (parameter + 1) % 5 == 0; }
  /// expected(p, g, s0, s1, first) changes what it gets.
  template <class F>
  void check(const F& expected) const {
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (std::size_t n = 0; n < parameters_.size(); ++n) {
      const Parameter& parameter = *parameters_[n];
      const auto p = parameter.parameter.numbers();
      const auto s0 = parameter.state0.numbers();
      const auto s1 = parameter.state1.numbers();
      const auto g = parameter.gradient.numbers();
      for (std::size_t i = 0; i < parameter.count; ++i) {
        double want[] = {parameter_at(i), state_at(i), state_at(i)};
        if (!refused(n)) expected(want[0], gradient_at(i), want[1], want[2], first(n));
        ASSERT_EQ(p[i], want[0]) << name(parameter.dtype) << ", " << parameter.count << " elements, element " << i;
        ASSERT_EQ(s0[i], want[1]) << name(parameter.dtype) << ", " << parameter.count << " elements, element " << i;
        ASSERT_EQ(s1[i], want[2]) << name(parameter.dtype) << ", " << parameter.count << " elements, element " << i;
        ASSERT_EQ(g[i], gradient_at(i));
      }
    }
    // Raised once by each refused update that has a counter, by nothing else.
    const std::vector<double> counts = counts_.numbers();
    for (std::size_t n = 0; n < kParameters; ++n) {
      EXPECT_EQ(counts[n], refused(n) && (n + 1) % 8 != 6 ? 8 : 7) << "parameter " << n;
    }
  }
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::unique_ptr<k::UpdateTable> table_ = std::make_unique<k::UpdateTable>();
  static constexpr std::size_t kParameters = std::size(kFloats) * std::size(kCounts);
  Memory words_{DType::int32, 2};
  Memory counts_{DType::int32, kParameters};
};

TEST_F(Update, SgdWithoutMomentum) {
  ASSERT_EQ(
      k::sgd(*table_, {.lr = 0.5, .momentum = 0, .dampening = 0, .weight_decay = 0.5, .nesterov = false}, nullptr),
      cudaSuccess);
  check([](double& p, double g, double&, double&, bool) { p -= 0.5 * (g + 0.5 * p); });
}

TEST_F(Update, SgdWithMomentum) {
  ASSERT_EQ(
      k::sgd(*table_, {.lr = 0.5, .momentum = 0.5, .dampening = 0.5, .weight_decay = 0, .nesterov = false}, nullptr),
      cudaSuccess);
  check([](double& p, double g, double& v, double&, bool first) {
    v = first ? g : 0.5 * v + 0.5 * g;
    p -= 0.5 * v;
  });
}

TEST_F(Update, SgdWithNesterov) {
  ASSERT_EQ(k::sgd(*table_, {.lr = 0.5, .momentum = 0.5, .dampening = 0, .weight_decay = 0, .nesterov = true}, nullptr),
            cudaSuccess);
  check([](double& p, double g, double& v, double&, bool first) {
    v = first ? g : 0.5 * v + g;
    p -= 0.5 * (g + 0.5 * v);
  });
}

TEST_F(Update, AdamWithoutMemory) {
  // Betas 0: the moments are g and g^2, the update the sign of g.
  ASSERT_EQ(k::adam(*table_, {.beta1 = 0, .beta2 = 0, .eps = 0, .decay = 0, .shrink = 0.5}, nullptr), cudaSuccess);
  check([](double& p, double g, double& m, double& v, bool) {
    m = g;
    v = g * g;
    p = 0.5 * p - (g > 0 ? 0.5 : -0.5);
  });
}

TEST_F(Update, AdamWithMemory) {
  // beta1 0.5 and the square root of v replaced by eps: root 0.
  for (int i = 0; i < table_->count; ++i) table_->chunks[i].root = 0;
  ASSERT_EQ(k::adam(*table_, {.beta1 = 0.5, .beta2 = 0.5, .eps = 1, .decay = 0, .shrink = 1}, nullptr), cudaSuccess);
  check([](double& p, double g, double& m, double& v, bool) {
    m = 0.5 * m + 0.5 * g;
    v = 0.5 * v + 0.5 * g * g;
    p -= 0.5 * m;
  });
}

TEST(UpdateTable, EveryNumberOfChunks) {
  // Each instance of the kernel, at its limits.
  constexpr std::size_t kLength = 5;
  for (const int count : {1, 49, 50, 51, 207, 208, 209, k::UpdateTable::kCapacity}) {
    if (count > k::update_capacity()) continue;
    Memory memory(DType::float32, static_cast<std::size_t>(2 * count) * kLength);
    std::vector<double> values;
    for (std::size_t i = 0; i < static_cast<std::size_t>(2 * count) * kLength; ++i) {
      values.push_back(static_cast<double>(i));
    }
    memory.write_numbers(values);
    const auto table = std::make_unique<k::UpdateTable>();
    table->count = count;
    for (int i = 0; i < count; ++i) {
      table->chunks[i] = {};
      table->chunks[i].parameter = memory.at(static_cast<std::size_t>(2 * i) * kLength);
      table->chunks[i].gradient = memory.at(static_cast<std::size_t>(2 * i + 1) * kLength);
      table->chunks[i].numel = kLength;
      table->chunks[i].type = k::Type::float32;
    }
    k::plan(*table);
    EXPECT_EQ(table->blocks, count);
    ASSERT_EQ(k::sgd(*table, {.lr = 1, .momentum = 0, .dampening = 0, .weight_decay = 0, .nesterov = false}, nullptr),
              cudaSuccess);
    const auto after = memory.numbers();
    for (std::size_t i = 0; i < after.size(); ++i) {
      ASSERT_EQ(after[i], i / kLength % 2 == 0 ? -5.0 : values[i]) << count << " chunks, element " << i;
    }
  }
}

TEST(UpdateTable, NothingAndNonsense) {
  const auto table = std::make_unique<k::UpdateTable>();
  k::plan(*table);
  EXPECT_EQ(k::sgd(*table, {}, nullptr), cudaSuccess);
  EXPECT_EQ(k::adam(*table, {}, nullptr), cudaSuccess);
  table->count = 1;
  table->chunks[0] = {};
  table->chunks[0].numel = 1;
  table->chunks[0].type = k::Type::int32;
  EXPECT_EQ(k::sgd(*table, {}, nullptr), cudaErrorInvalidValue);
  table->count = k::UpdateTable::kCapacity + 1;
  EXPECT_EQ(k::adam(*table, {}, nullptr), cudaErrorInvalidValue);
}

/// Arrays of all types, sizes and alignments.
class Arrays : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const DType dtype : kFloats) {
      for (const std::size_t count : kCounts) {
        dtypes_.push_back(dtype);
        arrays_.push_back(std::make_unique<Guarded>(dtype, count, arrays_.size() % 2, gradient_at));
        k::ArrayChunk& chunk = table_->chunks[table_->count++];
        chunk.data = arrays_.back()->data();
        chunk.numel = static_cast<std::int64_t>(count);
        chunk.type = type_of(dtype);
      }
    }
    k::plan(*table_);
  }
  void expect_factor(double factor) const {
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (std::size_t n = 0; n < arrays_.size(); ++n) {
      const auto got = arrays_[n]->numbers();
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i], factor * gradient_at(i))
            << name(dtypes_[n]) << ", " << got.size() << " elements, element " << i;
      }
    }
  }
  std::vector<DType> dtypes_;
  std::vector<std::unique_ptr<Guarded>> arrays_;
  std::unique_ptr<k::ArrayTable> table_ = std::make_unique<k::ArrayTable>();
};

TEST_F(Arrays, AreScaled) {
  ASSERT_EQ(k::scale(*table_, 0.25, nullptr), cudaSuccess);
  expect_factor(0.25);
}

TEST_F(Arrays, HaveANorm) {
  double squares = 0;
  for (const std::size_t count : kCounts) {
    for (std::size_t i = 0; i < count; ++i) squares += 4 * gradient_at(i) * gradient_at(i);
  }
  Memory partials(DType::float64, static_cast<std::size_t>(table_->blocks));
  Memory norm(DType::float64, 1);
  ASSERT_EQ(k::squares(*table_, static_cast<double*>(partials.data()), nullptr), cudaSuccess);
  ASSERT_EQ(k::norm_of_partials(static_cast<double*>(partials.data()), table_->blocks,
                                static_cast<double*>(norm.data()), nullptr),
            cudaSuccess);
  EXPECT_EQ(norm.numbers(), std::vector<double>{std::sqrt(squares)});
  expect_factor(1);
  ASSERT_EQ(k::norm_of_partials(nullptr, 0, static_cast<double*>(norm.data()), nullptr), cudaSuccess);
  EXPECT_EQ(norm.numbers(), std::vector<double>{0});
}

TEST_F(Arrays, AreScaledToANormOnTheDevice) {
  Memory norm(DType::float64, 1);
  norm.write_numbers({1.5});
  ASSERT_EQ(k::scale_to_norm(*table_, static_cast<double*>(norm.data()), 2, nullptr), cudaSuccess);
  expect_factor(1);
  // Not exactly a quarter; what rounds in the 16-bit types and float32 does not show.
  norm.write_numbers({8});
  ASSERT_EQ(k::scale_to_norm(*table_, static_cast<double*>(norm.data()), 8, nullptr), cudaSuccess);
  const double factor = 8 / (8 + 1e-6);
  for (std::size_t n = 0; n < arrays_.size(); ++n) {
    const auto got = arrays_[n]->numbers();
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double x = gradient_at(i);
      const double want = dtypes_[n] == DType::float64   ? x * factor
                          : dtypes_[n] == DType::float32 ? static_cast<float>(x) * static_cast<float>(factor)
                                                         : x;
      ASSERT_EQ(got[i], want) << name(dtypes_[n]) << ", element " << i;
    }
  }
}

TEST_F(Arrays, TurnNanOrZeroByANormThatIsNotFinite) {
  Memory norm(DType::float64, 1);
  norm.write_numbers({std::numeric_limits<double>::infinity()});
  ASSERT_EQ(k::scale_to_norm(*table_, static_cast<double*>(norm.data()), 1, nullptr), cudaSuccess);
  expect_factor(0);
  norm.write_numbers({std::numeric_limits<double>::quiet_NaN()});
  ASSERT_EQ(k::scale_to_norm(*table_, static_cast<double*>(norm.data()), 1, nullptr), cudaSuccess);
  for (const auto& array : arrays_) {
    for (const double x : array->numbers()) ASSERT_TRUE(std::isnan(x));
  }
}

TEST(ArrayTable, LargeArraysAreCutIntoLargerPieces) {
  constexpr std::int64_t kCount = 17'000'001;  // two tiles a block
  Memory memory(DType::uint8, static_cast<std::size_t>(4 * kCount));
  ASSERT_EQ(cudaMemset(memory.data(), 0, 4 * kCount), cudaSuccess);
  const auto table = std::make_unique<k::ArrayTable>();
  table->count = 1;
  table->chunks[0].data = memory.data();
  table->chunks[0].numel = kCount;
  table->chunks[0].type = k::Type::float32;
  k::plan(*table);
  EXPECT_GT(table->block_elements, k::kForeachTile);
  EXPECT_GE(table->blocks * table->block_elements, kCount);
  std::vector<float> values(kCount, 1);
  memory.write(values);
  Memory partials(DType::float64, static_cast<std::size_t>(table->blocks));
  Memory norm(DType::float64, 1);
  ASSERT_EQ(k::scale(*table, 3, nullptr), cudaSuccess);
  ASSERT_EQ(k::squares(*table, static_cast<double*>(partials.data()), nullptr), cudaSuccess);
  ASSERT_EQ(k::norm_of_partials(static_cast<double*>(partials.data()), table->blocks, static_cast<double*>(norm.data()),
                                nullptr),
            cudaSuccess);
  EXPECT_EQ(norm.numbers(), std::vector<double>{std::sqrt(9.0 * kCount)});
}

}  // namespace
}  // namespace ddp
