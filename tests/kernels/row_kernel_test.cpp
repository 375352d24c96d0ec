// Softmax, losses and their gradients against sums in double on the host: sizes around every limit of the
// kernels, arrays at odd offsets with their surroundings untouched, memory of exactly their size.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "ddp_kernels/loss.h"
#include "ddp_kernels/softmax.h"
#include "memory.h"

namespace {

using namespace ddp::test;  // NOLINT(google-build-using-namespace): what kernel tests share
using ddp::DType;
using Numbers = std::vector<double>;

constexpr DType kFloating[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16};

/// Error allowed, relative to the largest number: rounding of the result, and for float32 of sums and functions.
double tolerance(DType dtype) {
  return dtype == DType::float64 ? 1e-12 : dtype == DType::float32 ? 1e-5 : dtype == DType::float16 ? 2e-3 : 1e-2;
}

/// An array of `count` numbers behind one element that must keep its poison, with one more at the end.
class Framed {
 public:
  Framed(DType dtype, std::int64_t count) : memory_(dtype, static_cast<std::size_t>(count) + 2), dtype_(dtype) {}
  Framed(DType dtype, const Numbers& values) : Framed(dtype, static_cast<std::int64_t>(values.size())) {
    Numbers all = memory_.numbers();
    std::copy(values.begin(), values.end(), all.begin() + 1);
    const auto frame = memory_.read<std::uint8_t>();
    memory_.write_numbers(all);
    restore(frame);
  }
  void* data() const { return memory_.at(1); }
  /// The numbers, after a look at the frame.
  Numbers read() const {
    const auto bytes = memory_.read<std::uint8_t>();
    const std::size_t size = ddp::size_of(dtype_);
    for (std::size_t i = 0; i < size; ++i) {
      EXPECT_EQ(bytes[i], 0xA5) << "in front";
      EXPECT_EQ(bytes[bytes.size() - 1 - i], 0xA5) << "behind";
    }
    Numbers all = memory_.numbers();
    return {all.begin() + 1, all.end() - 1};
  }

 private:
  void restore(const std::vector<std::uint8_t>& frame) {
    auto bytes = memory_.read<std::uint8_t>();
    const auto size = static_cast<std::ptrdiff_t>(ddp::size_of(dtype_));
    std::copy(frame.begin(), frame.begin() + size, bytes.begin());
    std::copy(frame.end() - size, frame.end(), bytes.end() - size);
    memory_.write(bytes);
  }
  Memory memory_;
  DType dtype_;
};

/// Random numbers that the type holds exactly.
Numbers random_numbers(std::int64_t count, double low, double high, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int> steps(0, 64);
  Numbers values(static_cast<std::size_t>(count));
  for (double& value : values) value = low + (high - low) * steps(engine) / 64;
  return values;
}

void expect_near(const Numbers& got, const Numbers& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::fabs(value));
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::fabs(got[i] - expected[i]), tolerance * largest)
        << what << ": element " << i << " is " << got[i] << ", expected " << expected[i];
  }
}

struct Shape {
  std::int64_t outer, length, inner;
  std::int64_t count() const { return outer * length * inner; }
  std::size_t at(std::int64_t row, std::int64_t i) const {
    return static_cast<std::size_t>((row / inner * length + i) * inner + row % inner);
  }
};
constexpr Shape kShapes[] = {{1, 1, 1},   {3, 2, 1},    {13, 10, 1},  {5, 33, 1},   {3, 127, 1},  {3, 128, 1},
                             {9, 129, 1}, {2, 1023, 1}, {2, 1024, 1}, {3, 1025, 1}, {1, 3333, 1}, {2, 7, 3},
                             {1, 5, 257}, {2, 67, 5},   {1, 300, 2},  {3, 9, 300}};

Numbers log_softmax_of(const Numbers& x, const Shape& shape) {
  Numbers y(x.size());
  for (std::int64_t row = 0; row < shape.outer * shape.inner; ++row) {
    double largest = -INFINITY;
    double sum = 0;
    for (std::int64_t i = 0; i < shape.length; ++i) largest = std::max(largest, x[shape.at(row, i)]);
    for (std::int64_t i = 0; i < shape.length; ++i) sum += std::exp(x[shape.at(row, i)] - largest);
    for (std::int64_t i = 0; i < shape.length; ++i) y[shape.at(row, i)] = x[shape.at(row, i)] - largest - std::log(sum);
  }
  return y;
}

std::string text(DType dtype, const Shape& shape) {
  return std::string(name(dtype)) + " [" + std::to_string(shape.outer) + ", " + std::to_string(shape.length) + ", " +
         std::to_string(shape.inner) + "]";
}

TEST(SoftmaxKernel, ForwardAndGradient) {
  for (const DType dtype : kFloating) {
    for (const Shape& shape : kShapes) {
      for (const bool logarithm : {false, true}) {
        const std::string what = text(dtype, shape) + (logarithm ? " logarithm" : "");
        const k::Softmax call{shape.outer, shape.length, shape.inner, logarithm};
        const Numbers values = random_numbers(shape.count(), -4, 4, 1);
        Numbers expected = log_softmax_of(values, shape);
        if (!logarithm) {
          for (double& value : expected) value = std::exp(value);
        }
        const Framed x(dtype, values);
        const Framed y(dtype, shape.count());
        ASSERT_EQ(k::softmax(y.data(), x.data(), call, type_of(dtype), nullptr), cudaSuccess) << what;
        expect_near(y.read(), expected, tolerance(dtype), what);
        ASSERT_EQ(k::softmax(x.data(), x.data(), call, type_of(dtype), nullptr), cudaSuccess) << what;
        EXPECT_EQ(x.read(), y.read()) << what << ", in place";

        const Numbers grads = random_numbers(shape.count(), -1, 1, 2);
        const Numbers saved = y.read();
        Numbers expected_grad(grads.size());
        for (std::int64_t row = 0; row < shape.outer * shape.inner; ++row) {
          double sum = 0;
          for (std::int64_t i = 0; i < shape.length; ++i) {
            const std::size_t at = shape.at(row, i);
            sum += logarithm ? grads[at] : grads[at] * saved[at];
          }
          for (std::int64_t i = 0; i < shape.length; ++i) {
            const std::size_t at = shape.at(row, i);
            expected_grad[at] = logarithm ? grads[at] - std::exp(saved[at]) * sum : saved[at] * (grads[at] - sum);
          }
        }
        const Framed grad(dtype, grads);
        const Framed x_grad(dtype, shape.count());
        ASSERT_EQ(k::softmax_grad(x_grad.data(), grad.data(), y.data(), call, type_of(dtype), nullptr), cudaSuccess);
        expect_near(x_grad.read(), expected_grad, tolerance(dtype), what + " gradient");
      }
    }
  }
}

TEST(SoftmaxKernel, NothingAndWhatIsNotTaken) {
  EXPECT_EQ(k::softmax(nullptr, nullptr, {3, 0, 1, true}, k::Type::float32, nullptr), cudaSuccess);
  EXPECT_EQ(k::softmax_grad(nullptr, nullptr, nullptr, {0, 5, 1, true}, k::Type::float32, nullptr), cudaSuccess);
  EXPECT_EQ(k::softmax(nullptr, nullptr, {-1, 5, 1, true}, k::Type::float32, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(k::softmax(nullptr, nullptr, {1, 5, 1, true}, k::Type::int32, nullptr), cudaErrorInvalidValue);
}

/// Runs a sum that may need a second launch.
template <class Launch>
void launch_sum(void* out, DType dtype, unsigned blocks, double divisor, const Launch& launch) {
  Memory partials(DType::float64, blocks);
  ASSERT_EQ(launch(static_cast<double*>(blocks > 1 ? partials.data() : nullptr)), cudaSuccess);
  if (blocks > 1) {
    ASSERT_EQ(k::finish_sum(out, type_of(dtype), static_cast<double*>(partials.data()), blocks, divisor, nullptr),
              cudaSuccess);
  }
}

std::vector<std::int64_t> random_labels(std::int64_t rows, std::int64_t classes) {
  std::mt19937 engine(7);
  std::vector<std::int64_t> labels(static_cast<std::size_t>(rows));
  for (auto& label : labels) label = static_cast<std::int64_t>(engine() % static_cast<unsigned>(classes));
  return labels;
}

TEST(CrossEntropyKernel, LossLogProbabilitiesAndGradient) {
  const std::pair<std::int64_t, std::int64_t> shapes[] = {{1, 1},   {64, 10},   {13, 33},  {1100, 33}, {3, 128},
                                                          {3, 129}, {40, 1000}, {1, 1025}, {7, 2049}};
  for (const DType dtype : kFloating) {
    for (const auto& [rows, classes] : shapes) {
      for (const double smoothing : {0.0, 0.25}) {
        for (const bool mean : {false, true}) {
          const std::string what =
              text(dtype, {rows, classes, 1}) + " smoothing " + std::to_string(smoothing) + (mean ? " mean" : " sum");
          const k::CrossEntropy call{rows, classes, mean, smoothing};
          const Numbers values = random_numbers(rows * classes, -4, 4, 3);
          const auto labels = random_labels(rows, classes);
          Memory target(DType::int64, labels.size());
          target.write(labels);
          const auto* device_target = static_cast<const std::int64_t*>(target.data());
          const Framed logits(dtype, values);
          const Framed log_probs(dtype, rows * classes);
          const Framed loss(dtype, std::int64_t{1});
          launch_sum(loss.data(), dtype, k::cross_entropy_blocks(rows, classes), mean ? static_cast<double>(rows) : 1.0,
                     [&](double* partials) {
                       return k::cross_entropy(loss.data(), partials, log_probs.data(), logits.data(), device_target,
                                               call, type_of(dtype), nullptr);
                     });
          expect_near(log_probs.read(), log_softmax_of(values, {rows, classes, 1}), tolerance(dtype), what);
          // From the log-probabilities as they are stored.
          const Numbers stored = log_probs.read();
          const double divisor = mean ? static_cast<double>(rows) : 1.0;
          double expected = 0;
          Numbers expected_grad(stored.size());
          for (std::size_t i = 0; i < stored.size(); ++i) {
            const std::size_t row = i / static_cast<std::size_t>(classes);
            const bool own = static_cast<std::int64_t>(i % static_cast<std::size_t>(classes)) == labels[row];
            const double weight = smoothing / static_cast<double>(classes) + (own ? 1 - smoothing : 0);
            expected -= weight * stored[i] / divisor;
            expected_grad[i] = 2 / divisor * (std::exp(stored[i]) - weight);
          }
          expect_near(loss.read(), {expected}, tolerance(dtype), what + " loss");
          const Framed grad(dtype, Numbers{2});
          const Framed out(dtype, rows * classes);
          ASSERT_EQ(k::cross_entropy_grad(out.data(), grad.data(), log_probs.data(), device_target, call,
                                          type_of(dtype), nullptr),
                    cudaSuccess);
          expect_near(out.read(), expected_grad, tolerance(dtype), what + " gradient");
        }
      }
    }
  }
}

TEST(CrossEntropyKernel, NoRowsAndLabelsOutOfRange) {
  const Framed loss(DType::float32, std::int64_t{1});
  for (const bool mean : {true, false}) {
    ASSERT_EQ(
        k::cross_entropy(loss.data(), nullptr, nullptr, nullptr, nullptr, {0, 10, mean, 0}, k::Type::float32, nullptr),
        cudaSuccess);
    EXPECT_TRUE(mean ? std::isnan(loss.read()[0]) : loss.read()[0] == 0);
  }
  for (const std::int64_t classes : {5, 500, 1500}) {
    for (const std::int64_t label : {std::int64_t{-1}, classes, INT64_MAX, INT64_MIN}) {
      const Framed logits(DType::float32, Numbers(static_cast<std::size_t>(2 * classes), 1));
      const Framed log_probs(DType::float32, 2 * classes);
      Memory target(DType::int64, 2);
      target.write(std::vector<std::int64_t>{1, label});
      const auto* device_target = static_cast<const std::int64_t*>(target.data());
      ASSERT_EQ(k::cross_entropy_blocks(2, classes), 1U);
      ASSERT_EQ(k::cross_entropy(loss.data(), nullptr, log_probs.data(), logits.data(), device_target,
                                 {2, classes, true, 0}, k::Type::float32, nullptr),
                cudaSuccess);
      EXPECT_TRUE(std::isnan(loss.read()[0])) << classes << " " << label;
      const Framed grad(DType::float32, Numbers{1});
      const Framed out(DType::float32, 2 * classes);
      ASSERT_EQ(k::cross_entropy_grad(out.data(), grad.data(), log_probs.data(), device_target, {2, classes, true, 0},
                                      k::Type::float32, nullptr),
                cudaSuccess);
      const Numbers result = out.read();
      for (std::size_t i = 0; i < result.size(); ++i) {
        ASSERT_EQ(std::isnan(result[i]), i >= static_cast<std::size_t>(classes)) << classes << " " << label;
      }
    }
  }
}

TEST(MseLossKernel, LossAndGradient) {
  for (const DType dtype : kFloating) {
    for (const std::int64_t count : {1, 31, 513, 16384, 16385, 40001}) {
      const Numbers a = random_numbers(count, -1, 1, 4);
      const Numbers b = random_numbers(count, -1, 1, 5);
      const Framed x(dtype, a);
      const Framed target(dtype, b);
      const Framed loss(dtype, std::int64_t{1});
      const auto divisor = static_cast<double>(count);
      launch_sum(loss.data(), dtype, k::mse_loss_blocks(count), divisor, [&](double* partials) {
        return k::mse_loss(loss.data(), partials, x.data(), target.data(), count, true, type_of(dtype), nullptr);
      });
      double expected = 0;
      Numbers expected_grad(a.size());
      for (std::size_t i = 0; i < a.size(); ++i) {
        expected += (a[i] - b[i]) * (a[i] - b[i]) / divisor;
        expected_grad[i] = 2 * 4 * (a[i] - b[i]);
      }
      const std::string what = text(dtype, {1, count, 1});
      expect_near(loss.read(), {expected}, tolerance(dtype), what);
      const Framed grad(dtype, Numbers{4});
      const Framed out(dtype, count);
      ASSERT_EQ(
          k::mse_loss_grad(out.data(), grad.data(), x.data(), target.data(), count, false, type_of(dtype), nullptr),
          cudaSuccess);
      expect_near(out.read(), expected_grad, tolerance(dtype), what + " gradient");
    }
  }
}

TEST(CountCorrectKernel, FirstLargestAndNan) {
  for (const DType dtype : kFloating) {
    for (const auto& [rows, classes] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {37, 3}, {300, 130}, {70, 65}}) {
      Numbers values = random_numbers(rows * classes, 0, 4, 6);
      for (double& value : values) value = std::floor(value);  // several largest elements a row
      for (std::size_t i = 5; i < values.size(); i += 97) values[i] = NAN;
      const auto labels = random_labels(rows, std::min<std::int64_t>(classes, 3));
      std::int64_t expected = 0;
      for (std::int64_t r = 0; r < rows; ++r) {
        std::int64_t best = 0;
        for (std::int64_t j = 1; j < classes; ++j) {
          const double value = values[static_cast<std::size_t>(r * classes + j)];
          const double most = values[static_cast<std::size_t>(r * classes + best)];
          if (value > most || (std::isnan(value) && !std::isnan(most))) best = j;
        }
        expected += best == labels[static_cast<std::size_t>(r)] ? 1 : 0;
      }
      const Framed logits(dtype, values);
      Memory target(DType::int64, labels.size());
      target.write(labels);
      Memory out(DType::int64, 1);
      launch_sum(out.data(), DType::int64, k::count_correct_blocks(rows, classes), 1, [&](double* partials) {
        return k::count_correct(static_cast<std::int64_t*>(out.data()), partials, logits.data(),
                                static_cast<const std::int64_t*>(target.data()), rows, classes, type_of(dtype),
                                nullptr);
      });
      EXPECT_EQ(out.read<std::int64_t>()[0], expected) << text(dtype, {rows, classes, 1});
    }
  }
}

}  // namespace
