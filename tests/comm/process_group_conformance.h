#pragma once

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "support/ranks.h"

/// The tests that every group passes: one body, run for each backend and world size.
namespace ddp::test {

struct GroupCase {
  std::string backend;
  int size = 1;
};
inline void PrintTo(const GroupCase& value, std::ostream* out) { *out << value.backend << value.size; }

class GroupTest : public ::testing::TestWithParam<GroupCase> {
 protected:
  int size() const { return GetParam().size; }
  void run(const RankFunction& body, std::chrono::milliseconds timeout = std::chrono::seconds(20)) const {
    run_ranks(size(), body, {.backend = GetParam().backend, .timeout = timeout});
  }
};

/// n elements of that dtype: from + step * i, small whole numbers, exact in every dtype.
inline Tensor numbers(DType dtype, std::int64_t n, double from, double step = 0) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(from + step * static_cast<double>(i));
  const Tensor result = empty({n}, {.dtype = dtype});
  // Converted by hand: the tests of comm do not lean on the conversions of other rooms.
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = values[static_cast<std::size_t>(i)];
    switch (dtype) {
      case DType::float32:
        result.data_ptr<float>()[i] = static_cast<float>(value);
        break;
      case DType::float64:
        result.data_ptr<double>()[i] = value;
        break;
      case DType::float16:
        result.data_ptr<Half>()[i] = Half(static_cast<float>(value));
        break;
      case DType::bfloat16:
        result.data_ptr<BFloat16>()[i] = BFloat16(static_cast<float>(value));
        break;
      case DType::int32:
        result.data_ptr<std::int32_t>()[i] = static_cast<std::int32_t>(value);
        break;
      case DType::int64:
        result.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(value);
        break;
      case DType::uint8:
        result.data_ptr<std::uint8_t>()[i] = static_cast<std::uint8_t>(value);
        break;
      case DType::boolean:
        result.data_ptr<bool>()[i] = value != 0;
        break;
    }
  }
  return result;
}

inline Tensor matrix(std::int64_t rows, std::int64_t columns,
                     const std::function<float(std::int64_t, std::int64_t)>& f) {
  std::vector<float> values;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) values.push_back(f(r, c));
  }
  return tensor(values, {rows, columns});
}

/// The text of the error that `call` throws; fails the test when it throws none or another kind.
template <class Kind, class Call>
std::string error_text(const Call& call) {
  try {
    call();
  } catch (const Kind& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
#define EXPECT_CONTAINS(text, part) EXPECT_TRUE(::ddp::test::contains(text, part)) << "text: " << (text)

}  // namespace ddp::test
