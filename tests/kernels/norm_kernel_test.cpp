// Normalisation kernels on numbers whose statistics are exact: aligned memory and not, one piece and many.
#include "ddp_kernels/norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "memory.h"

namespace ddp {
namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): the helpers of these tests

constexpr DType kFloats[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16};

DType statistics(DType dtype) { return dtype == DType::float64 ? DType::float64 : DType::float32; }

/// Element i of a channel is its number plus -2 or 2, equally often: mean and standard deviation 2 are exact.
double value_at(std::int64_t i, std::int64_t channel) {
  return static_cast<double>(channel % 7) + (i % 2 == 0 ? -2 : 2);
}
/// 1 for three of four elements, -1 for the others: sums are whole.
double gradient_at(std::int64_t i) { return i % 4 == 3 ? -1 : 1; }

/// Element i of a channel counts images first, then places in the plane.
template <class F>
std::vector<double> channels(const k::ChannelShape& s, const F& f) {
  std::vector<double> result;
  for (std::int64_t image = 0; image < s.images; ++image) {
    for (std::int64_t channel = 0; channel < s.channels; ++channel) {
      for (std::int64_t place = 0; place < s.area; ++place) result.push_back(f(image * s.area + place, channel));
    }
  }
  return result;
}
/// With `from` numbers before and one behind.
std::vector<double> shifted(const std::vector<double>& values, std::size_t from) {
  std::vector<double> result(from, 99);
  result.insert(result.end(), values.begin(), values.end());
  result.push_back(99);
  return result;
}

// Elements per channel are a multiple of 4. Planes in packs and not, areas of 1, more channels than a block has
// columns.
const k::ChannelShape kShapes[] = {{4, 3, 16},   {4, 5, 9},   {12, 3, 1},   {400, 70, 1}, {8, 2, 3000},
                                   {4, 33, 121}, {2, 300, 2}, {5000, 3, 1}, {64, 1, 64}};

class Batch : public ::testing::TestWithParam<DType> {};

TEST_P(Batch, StatisticsInOneAndInManyPieces) {
  const DType dtype = GetParam();
  for (const k::ChannelShape& s : kShapes) {
    const auto x = channels(s, value_at);
    std::vector<double> mean;
    for (std::int64_t c = 0; c < s.channels; ++c) mean.push_back(static_cast<double>(c % 7));
    const std::vector<double> variance(mean.size(), 4);
    for (const std::size_t from : {0, 1}) {
      Memory input(dtype, x.size() + from + 1);
      input.write_numbers(shifted(x, from));
      for (const std::int64_t pieces : {std::int64_t{1}, std::int64_t{3}, std::int64_t{50}, k::channel_pieces(s)}) {
        Memory means(statistics(dtype), mean.size());
        Memory variances(statistics(dtype), mean.size());
        Memory partials(DType::uint8, k::partials_bytes(s, pieces));
        ASSERT_EQ(k::batch_statistics(input.at(from), s, pieces, partials.data(), means.data(), variances.data(),
                                      type_of(dtype), nullptr),
                  cudaSuccess);
        if (pieces > 1) {
          ASSERT_EQ(k::merge_statistics(input.at(from), partials.data(), s, pieces, means.data(), variances.data(),
                                        type_of(dtype), nullptr),
                    cudaSuccess);
        }
        const auto got_means = means.numbers();
        const auto got_variances = variances.numbers();
        for (std::size_t c = 0; c < mean.size(); ++c) {
          // Shares like 1/3 are rounded: some units of 2^-24 (2^-53) of numbers below 8.
          const double tolerance = dtype == DType::float64 ? 1e-13 : 8e-6;
          ASSERT_NEAR(got_means[c], mean[c], tolerance)
              << s.images << "x" << s.channels << "x" << s.area << ", " << pieces << " pieces, channel " << c;
          ASSERT_NEAR(got_variances[c], variance[c], tolerance)
              << s.images << "x" << s.channels << "x" << s.area << ", " << pieces << " pieces, channel " << c;
        }
      }
    }
  }
}

TEST_P(Batch, NormalizeAndGradients) {
  const DType dtype = GetParam();
  const DType of_channel = statistics(dtype);
  for (const k::ChannelShape& s : kShapes) {
    const auto x = channels(s, value_at);
    const auto g = channels(s, [](std::int64_t i, std::int64_t) { return gradient_at(i); });
    const auto channel_count = static_cast<std::size_t>(s.channels);
    const auto count = static_cast<double>(s.images * s.area);
    std::vector<double> mean;
    for (std::int64_t c = 0; c < s.channels; ++c) mean.push_back(static_cast<double>(c % 7));
    Memory means(of_channel, channel_count);
    Memory inverses(of_channel, channel_count);
    Memory weights(of_channel, channel_count);
    Memory biases(of_channel, channel_count);
    means.write_numbers(mean);
    inverses.write_numbers(std::vector<double>(channel_count, 0.5));
    weights.write_numbers(std::vector<double>(channel_count, 4));
    biases.write_numbers(std::vector<double>(channel_count, 1));
    // x - mean is -2 and 2, normalised -1 and 1, times weight plus bias -3 and 5. The sum of the gradient is half of
    // the count, its product with the normalised x minus half: of four elements 1 -1, 1 1, 1 -1, -1 1.
    const auto y = channels(s, [](std::int64_t i, std::int64_t) { return i % 2 == 0 ? -3.0 : 5.0; });
    const auto trained = channels(s, [](std::int64_t i, std::int64_t) {
      const double normal = i % 2 == 0 ? -1 : 1;
      return 2 * (gradient_at(i) - 0.5 + normal * 0.5);
    });
    const auto constant = channels(s, [](std::int64_t i, std::int64_t) { return 2 * gradient_at(i); });
    for (const std::size_t from : {0, 1}) {
      Memory input(dtype, x.size() + from + 1);
      Memory grad(dtype, x.size() + from + 1);
      Memory out(dtype, x.size() + from + 1);
      input.write_numbers(shifted(x, from));
      grad.write_numbers(shifted(g, from));
      out.write_numbers(std::vector<double>(x.size() + from + 1, 99));
      ASSERT_EQ(k::batch_normalize(input.at(from), s, means.data(), inverses.data(), weights.data(), biases.data(),
                                   out.at(from), type_of(dtype), nullptr),
                cudaSuccess);
      EXPECT_EQ(out.numbers(), shifted(y, from)) << name(dtype) << ", offset " << from;
      for (const std::int64_t pieces : {std::int64_t{1}, std::int64_t{7}, k::channel_pieces(s)}) {
        Memory weight_grad(of_channel, channel_count);
        Memory bias_grad(of_channel, channel_count);
        Memory partials(DType::uint8, k::partials_bytes(s, pieces));
        ASSERT_EQ(k::batch_grad_sums(grad.at(from), input.at(from), s, means.data(), inverses.data(), pieces,
                                     partials.data(), weight_grad.data(), bias_grad.data(), type_of(dtype), nullptr),
                  cudaSuccess);
        if (pieces > 1) {
          ASSERT_EQ(k::merge_grad_sums(partials.data(), s, pieces, weight_grad.data(), bias_grad.data(), type_of(dtype),
                                       nullptr),
                    cudaSuccess);
        }
        EXPECT_EQ(bias_grad.numbers(), std::vector<double>(channel_count, count / 2)) << name(dtype);
        EXPECT_EQ(weight_grad.numbers(), std::vector<double>(channel_count, -count / 2)) << name(dtype);
        for (const bool training : {true, false}) {
          ASSERT_EQ(k::batch_input_grad(grad.at(from), input.at(from), s, means.data(), inverses.data(), weights.data(),
                                        weight_grad.data(), bias_grad.data(), training, out.at(from), type_of(dtype),
                                        nullptr),
                    cudaSuccess);
          EXPECT_EQ(out.numbers(), shifted(training ? trained : constant, from)) << name(dtype) << ", offset " << from;
        }
      }
    }
  }
}

TEST_P(Batch, RowsAndTheirGradients) {
  const DType dtype = GetParam();
  const DType of_row = statistics(dtype);
  const struct {
    std::int64_t rows, length;
  } sizes[] = {{5, 8}, {37, 20}, {3, 1024}, {2, 8196}, {70, 36}, {1, 4}, {300, 12}};
  for (const auto& [rows, length] : sizes) {
    // As a batch of one image whose channels are the rows.
    const k::ChannelShape as_channels{1, rows, length};
    const auto row_count = static_cast<std::size_t>(rows);
    const auto columns = static_cast<std::size_t>(length);
    const auto x = channels(as_channels, value_at);
    const auto g = channels(as_channels, [](std::int64_t i, std::int64_t) { return gradient_at(i); });
    Memory weights(of_row, columns);
    Memory biases(of_row, columns);
    weights.write_numbers(std::vector<double>(columns, 4));
    biases.write_numbers(std::vector<double>(columns, 1));
    for (const std::size_t from : {0, 1}) {
      Memory input(dtype, x.size() + from + 1);
      Memory grad(dtype, x.size() + from + 1);
      Memory out(dtype, x.size() + from + 1);
      Memory means(of_row, row_count);
      Memory inverses(of_row, row_count);
      input.write_numbers(shifted(x, from));
      grad.write_numbers(shifted(g, from));
      out.write_numbers(std::vector<double>(x.size() + from + 1, 99));
      ASSERT_EQ(k::layer_norm(input.at(from), rows, length, weights.data(), biases.data(), 0, out.at(from),
                              means.data(), inverses.data(), type_of(dtype), nullptr),
                cudaSuccess);
      const auto y = out.numbers();
      const auto got_means = means.numbers();
      const auto got_inverses = inverses.numbers();
      const double tolerance = dtype == DType::float64 ? 1e-13 : 1e-5;
      for (std::size_t r = 0; r < row_count; ++r) {
        ASSERT_NEAR(got_means[r], static_cast<double>(r % 7), tolerance) << length << " columns, row " << r;
        ASSERT_NEAR(got_inverses[r], 0.5, tolerance) << length << " columns, row " << r;
      }
      // Rounded to 16 bits, numbers so close to 5 and -3 are these.
      const double near = size_of(dtype) == 2 ? 0.03125 : 4 * tolerance;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double want = i % columns % 2 == 0 ? -3 : 5;
        ASSERT_NEAR(y[from + i], want, near) << length << " columns, element " << i;
      }
      EXPECT_EQ(y.back(), 99);
      // From here on with exact statistics.
      std::vector<double> mean;
      for (std::int64_t r = 0; r < rows; ++r) mean.push_back(static_cast<double>(r % 7));
      means.write_numbers(mean);
      inverses.write_numbers(std::vector<double>(row_count, 0.5));
      ASSERT_EQ(k::layer_input_grad(grad.at(from), input.at(from), rows, length, weights.data(), means.data(),
                                    inverses.data(), out.at(from), type_of(dtype), nullptr),
                cudaSuccess);
      const auto x_grad = channels(as_channels, [](std::int64_t i, std::int64_t) {
        const double normal = i % 2 == 0 ? -1 : 1;
        return 2 * (gradient_at(i) - 0.5 + normal * 0.5);
      });
      EXPECT_EQ(out.numbers(), shifted(x_grad, from)) << name(dtype) << ", " << rows << " rows of " << length;
      const k::ChannelShape as_columns{rows, length, 1};
      for (const std::int64_t pieces : {std::int64_t{1}, std::int64_t{5}, k::channel_pieces(as_columns)}) {
        Memory weight_grad(of_row, columns);
        Memory bias_grad(of_row, columns);
        Memory partials(DType::uint8, k::partials_bytes(as_columns, pieces));
        ASSERT_EQ(k::layer_grad_sums(grad.at(from), input.at(from), rows, length, means.data(), inverses.data(), pieces,
                                     partials.data(), weight_grad.data(), bias_grad.data(), type_of(dtype), nullptr),
                  cudaSuccess);
        if (pieces > 1) {
          ASSERT_EQ(k::merge_grad_sums(partials.data(), as_columns, pieces, weight_grad.data(), bias_grad.data(),
                                       type_of(dtype), nullptr),
                    cudaSuccess);
        }
        std::vector<double> products;
        std::vector<double> sums;
        for (std::int64_t i = 0; i < length; ++i) {
          sums.push_back(gradient_at(i) * static_cast<double>(rows));
          products.push_back(sums.back() * (i % 2 == 0 ? -1 : 1));
        }
        EXPECT_EQ(bias_grad.numbers(), sums) << name(dtype) << ", " << rows << " rows of " << length;
        EXPECT_EQ(weight_grad.numbers(), products) << name(dtype) << ", " << rows << " rows of " << length;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Norm, Batch, ::testing::ValuesIn(kFloats),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(Norm, TypesThatAreNotFloatingPoint) {
  EXPECT_EQ(k::batch_statistics(nullptr, {1, 1, 1}, 1, nullptr, nullptr, nullptr, k::Type::int32, nullptr),
            cudaErrorInvalidValue);
  EXPECT_EQ(k::layer_norm(nullptr, 1, 1, nullptr, nullptr, 0, nullptr, nullptr, nullptr, k::Type::boolean, nullptr),
            cudaErrorInvalidValue);
}

}  // namespace
}  // namespace ddp
