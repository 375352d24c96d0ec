#pragma once

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "support/rank_gpu.h"
#include "support/ranks.h"
#include "tensor/copy.h"

/// The tests that every group passes: one body, run for each backend and world size.
///
/// Ranks are threads, except with DDP_TEST_RANK_PROCESS: then this program is one of several ranks, each of which runs
/// all the tests in one order, over NCCL and a GPU that they share.
#ifndef DDP_TEST_RANK_PROCESS
#define DDP_TEST_RANK_PROCESS 0
#endif
namespace ddp::test {

struct GroupCase {
  std::string backend;
  int size = 1;
  Device device = Device::cpu();
};
inline void PrintTo(const GroupCase& value, std::ostream* out) { *out << value.backend << value.size; }

/// Where the helpers below make tensors: the group's device, while a body runs.
inline thread_local Device test_device = Device::cpu();
inline TensorOptions on(DType dtype = DType::float32) { return {.dtype = dtype, .device = test_device}; }

constexpr bool kRanksAreProcesses = DDP_TEST_RANK_PROCESS != 0;
#if DDP_TEST_RANK_PROCESS
/// The one group that this process's tests share; ended before the process's statics are.
inline std::shared_ptr<comm::ProcessGroup>& process_group() {
  static std::shared_ptr<comm::ProcessGroup> group;
  return group;
}
class ProcessGroupEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    process_group() =
        comm::init_process_group({.backend = "nccl", .device = rank_gpu(), .timeout = std::chrono::seconds(60)});
  }
  void TearDown() override { process_group().reset(); }
};
inline ::testing::Environment* const process_group_environment =
    ::testing::AddGlobalTestEnvironment(new ProcessGroupEnvironment);
#endif

class GroupTest : public ::testing::TestWithParam<GroupCase> {
 protected:
  int size() const { return GetParam().size; }
  void run(const RankFunction& body, std::chrono::milliseconds timeout = std::chrono::seconds(20)) const {
#if DDP_TEST_RANK_PROCESS
    static_cast<void>(timeout);
    test_device = process_group()->device();
    body(process_group()->rank(), process_group());
#else
    run_ranks(size(),
              [&](int rank, const auto& group) {
                test_device = group->device();
                body(rank, group);
              },
              {.backend = GetParam().backend, .device = GetParam().device, .timeout = timeout});
#endif
  }
};

/// n elements of that dtype: from + step * i, small whole numbers, exact in every dtype.
inline Tensor host_numbers(DType dtype, std::int64_t n, double from, double step = 0) {
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

inline Tensor numbers(DType dtype, std::int64_t n, double from, double step = 0) {
  return raw::to(host_numbers(dtype, n, from, step), test_device);
}

inline Tensor matrix(std::int64_t rows, std::int64_t columns,
                     const std::function<float(std::int64_t, std::int64_t)>& f) {
  std::vector<float> values;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) values.push_back(f(r, c));
  }
  return tensor(values, {rows, columns}, test_device);
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
