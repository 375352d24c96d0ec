// Results of every collective on whole numbers.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "comm/group_cases.h"
#include "comm/process_group_conformance.h"

namespace ddp::test {
namespace {

using comm::ReduceOp;

constexpr DType kDTypes[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16,
                             DType::int32,   DType::int64,   DType::uint8};

// Of the numbers 1..n by rank plus a place-dependent term: exact in bfloat16 (up to 256) for four ranks.
double expected(ReduceOp op, int size, std::int64_t i) {
  double result = 0;
  for (int rank = 0; rank < size; ++rank) {
    const double value = (rank + 1) + static_cast<double>(i % 2);
    if (rank == 0)
      result = value;
    else if (op == ReduceOp::sum)
      result += value;
    else if (op == ReduceOp::product)
      result *= value;
    else if (op == ReduceOp::min)
      result = std::min(result, value);
    else
      result = std::max(result, value);
  }
  return result;
}

Tensor contribution(DType dtype, std::int64_t n, int rank) {
  std::vector<double> values;
  const Tensor even = host_numbers(dtype, n, rank + 1);
  const Tensor odd = host_numbers(dtype, n, rank + 2);
  const auto bytes = static_cast<std::int64_t>(size_of(dtype));
  for (std::int64_t i = 1; i < n; i += 2) {
    std::copy_n(static_cast<const char*>(odd.data()) + i * bytes, bytes, static_cast<char*>(even.data()) + i * bytes);
  }
  return raw::to(even, test_device);
}

// The averages of `contribution` at even and odd places: one division, rounded to the dtype.
Tensor divided(DType dtype, int size) {
  const double even = expected(ReduceOp::sum, size, 0);
  const double odd = expected(ReduceOp::sum, size, 1);
  const Tensor result = empty({2}, {.dtype = dtype});
  for (int i = 0; i < 2; ++i) {
    const double sum = i == 0 ? even : odd;
    const float quotient = static_cast<float>(sum) / static_cast<float>(size);
    if (dtype == DType::float64) result.data_ptr<double>()[i] = sum / size;
    if (dtype == DType::float32) result.data_ptr<float>()[i] = quotient;
    if (dtype == DType::float16) result.data_ptr<Half>()[i] = Half(quotient);
    if (dtype == DType::bfloat16) result.data_ptr<BFloat16>()[i] = BFloat16(quotient);
  }
  return result;
}

// Backward must not go on with numbers that a collective has replaced.
TEST_P(GroupTest, OutputsCountAsChangedInPlace) {
  run([&](int rank, const auto& group) {
    const auto raised = [](const Tensor& output, const auto& call) {
      const auto before = output.version();
      call();
      return output.version() > before;
    };
    const Tensor one = ones({2}, on());
    const Tensor rows = ones({size(), 2}, on());
    EXPECT_TRUE(raised(one, [&] { group->all_reduce(one).wait(); }));
    EXPECT_TRUE(raised(one, [&] { group->broadcast(one).wait(); }));
    EXPECT_TRUE(raised(one, [&] { group->broadcast_coalesced({one}).wait(); }));
    EXPECT_TRUE(raised(rows, [&] { group->all_gather(rows, one).wait(); }));
    EXPECT_TRUE(raised(one, [&] { group->reduce_scatter(one, rows).wait(); }));
    if (size() < 2 || rank > 1) return;
    const auto before = one.version();
    if (rank == 0) {
      group->send(one, 1).wait();
    } else {
      group->recv(one, 0).wait();
    }
    EXPECT_EQ(one.version(), before + (rank == 1 ? 1 : 0));
  });
}

TEST_P(GroupTest, AllReduceEveryDtypeAndOperation) {
  run([&](int rank, const auto& group) {
    for (const DType dtype : kDTypes) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
        for (const std::int64_t n : {1, 3, 1030}) {
          const Tensor tensor = contribution(dtype, n, rank);
          group->all_reduce(tensor, op).wait();
          const auto values = tensor.template to_vector<double>();
          for (std::int64_t i = 0; i < n; ++i) {
            ASSERT_EQ(values[static_cast<std::size_t>(i)], expected(op, size(), i))
                << to_string(op) << " " << to_string(dtype) << " element " << i;
          }
        }
      }
    }
  });
}

// Sizes meet each way to combine; elements of one tensor divide to different remainders.
TEST_P(GroupTest, AverageDividesTheSum) {
  // NCCL may multiply each number by 1/N before it adds: N products, the rounded 1/N itself and N-1 sums, each half a
  // unit in the last place at most; nothing of that rounds when N is a power of two. Other groups divide exactly.
  const auto slack = [&](DType dtype) {
    if (GetParam().backend != "nccl" || size() == 1 || size() == 2 || size() == 4) return 0.0;
    const double unit = dtype == DType::float64   ? 0x1p-52
                        : dtype == DType::float32 ? 0x1p-23
                        : dtype == DType::float16 ? 0x1p-10
                                                  : 0x1p-7;
    return unit * size();
  };
  run([&](int rank, const auto& group) {
    for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
      for (const std::int64_t n : {1, 2, 3, 6, 1030, 9001, 700'003}) {
        if (n > 10'000 && dtype != DType::float32) continue;
        const Tensor tensor = contribution(dtype, n, rank);
        group->all_reduce(tensor, ReduceOp::average).wait();
        const Tensor wanted = divided(dtype, size());
        const auto values = tensor.template to_vector<double>();
        const auto quotients = wanted.template to_vector<double>();
        for (std::int64_t i = 0; i < n; ++i) {
          const double quotient = quotients[static_cast<std::size_t>(i % 2)];
          ASSERT_LE(std::abs(values[static_cast<std::size_t>(i)] - quotient), slack(dtype) * quotient)
              << to_string(dtype) << " of " << n << ", element " << i;
        }
      }
    }
    const std::vector<Tensor> several{contribution(DType::float32, 5, rank),
                                      contribution(DType::float32, 20'000, rank)};
    group->all_reduce_coalesced(several, ReduceOp::average).wait();
    const auto quotients = divided(DType::float32, size()).template to_vector<float>();
    for (const Tensor& tensor : several) {
      EXPECT_LE(std::abs(tensor.template to_vector<float>()[1] - quotients[1]), slack(DType::float32) * quotients[1]);
    }

    const Tensor rows = matrix(size(), 2, [&](auto r, auto) { return static_cast<float>(rank + 1 + r); });
    const Tensor mine = numbers(DType::float32, 2, -1);
    group->reduce_scatter(mine, rows, ReduceOp::average).wait();
    const auto ranks = static_cast<float>(size());
    const float sum = ranks * static_cast<float>(rank) + ranks * (ranks + 1) / 2;
    for (const float value : mine.template to_vector<float>()) {
      EXPECT_LE(std::abs(value - sum / ranks), slack(DType::float32) * sum / ranks);
    }
  });
}

TEST_P(GroupTest, AverageTakesFloatingPointOnly) {
  run([&](int rank, const auto& group) {
    for (const DType dtype : {DType::int32, DType::int64, DType::uint8, DType::boolean}) {
      const Tensor tensor = numbers(dtype, 3, 1);
      const auto text = error_text<InvalidArgument>([&] { group->all_reduce(tensor, ReduceOp::average); });
      EXPECT_CONTAINS(text, to_string(dtype));
      EXPECT_EQ(tensor.template to_vector<double>(), (std::vector<double>{1, 1, 1}));
    }
    // The refused calls left no trace: the next one meets its counterpart.
    const Tensor one = numbers(DType::float32, 1, rank);
    group->all_reduce(one).wait();
    EXPECT_EQ(one.template to_vector<float>()[0], static_cast<float>(size() * (size() - 1)) / 2);
  });
}

TEST_P(GroupTest, AllReduceOfBools) {
  run([&](int rank, const auto& group) {
    // Nobody, only the last rank, everybody.
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::product}) {
      const Tensor tensor = ddp::tensor<bool>({false, rank == size() - 1, true}, test_device);
      group->all_reduce(tensor, op).wait();
      const bool any = op == ReduceOp::sum || op == ReduceOp::max;
      const auto values = tensor.template to_vector<std::int64_t>();
      EXPECT_EQ(values, (std::vector<std::int64_t>{0, any || size() == 1 ? 1 : 0, 1}));
    }
  });
}

TEST_P(GroupTest, AllReduceLargeAndOdd) {
  run([&](int rank, const auto& group) {
    // Over a megabyte and not divisible by the ranks, so that segments and remainders are met.
    const std::int64_t n = 700'003;
    const Tensor tensor = numbers(DType::float32, n, rank, 1);
    group->all_reduce(tensor).wait();
    const auto values = tensor.template to_vector<float>();
    const double ranks = size() * (size() - 1) / 2.0;
    for (std::int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(values[static_cast<std::size_t>(i)], static_cast<float>(ranks + size() * static_cast<double>(i))) << i;
    }
  });
}

TEST_P(GroupTest, AllReduceGivesTheSameBitsEverywhere) {
  run([&](int rank, const auto& group) {
    std::vector<float> values(5000);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = 1.0F / static_cast<float>(3 + rank + static_cast<int>(i));  // sums round
    }
    const Tensor tensor = ddp::tensor(values, {5000}, test_device);
    group->all_reduce(tensor).wait();
    const Tensor rows = empty({size(), 5000}, on());
    group->all_gather(rows, tensor).wait();
    const auto mine = tensor.template to_vector<float>();
    const auto all = rows.template to_vector<float>();
    for (int r = 0; r < size(); ++r) EXPECT_TRUE(std::equal(mine.begin(), mine.end(), all.begin() + r * 5000)) << r;
  });
}

TEST_P(GroupTest, WholeNumbersWrap) {
  run([&](int, const auto& group) {
    const Tensor bytes = ddp::tensor<std::uint8_t>({200}, test_device);
    const Tensor longs = ddp::tensor<std::int64_t>({INT64_MAX}, test_device);
    group->all_reduce(bytes).wait();
    group->all_reduce(longs).wait();
    EXPECT_EQ(bytes.template to_vector<std::int64_t>()[0], (200 * size()) % 256);
    EXPECT_EQ(longs.template to_vector<std::int64_t>()[0],
              static_cast<std::int64_t>(static_cast<std::uint64_t>(INT64_MAX) * static_cast<std::uint64_t>(size())));
  });
}

TEST_P(GroupTest, Coalesced) {
  run([&](int rank, const auto& group) {
    const std::vector<Tensor> tensors{numbers(DType::float64, 3, rank, 1), numbers(DType::float64, 0, 0),
                                      numbers(DType::float64, 1, 10 * rank), numbers(DType::float64, 40'000, rank)};
    group->all_reduce_coalesced(tensors).wait();
    const double ranks = size() * (size() - 1) / 2.0;
    EXPECT_EQ(tensors[0].template to_vector<double>(),
              (std::vector<double>{ranks, ranks + size(), ranks + 2.0 * size()}));
    EXPECT_EQ(tensors[2].template to_vector<double>(), (std::vector<double>{10 * ranks}));
    EXPECT_EQ(tensors[3].template to_vector<double>(), std::vector<double>(40'000, ranks));

    const std::vector<Tensor> sent{numbers(DType::int32, 2, rank, 7), numbers(DType::int32, 1, -rank)};
    group->broadcast_coalesced(sent, size() - 1).wait();
    EXPECT_EQ(sent[0].template to_vector<int>(), (std::vector<int>{size() - 1, size() + 6}));
    EXPECT_EQ(sent[1].template to_vector<int>(), (std::vector<int>{1 - size()}));
  });
}

TEST_P(GroupTest, BroadcastFromEachRoot) {
  run([&](int rank, const auto& group) {
    for (int root = 0; root < size(); ++root) {
      for (const std::int64_t n : {1, 300'000}) {
        const Tensor tensor = numbers(DType::float32, n, rank * 5 + 1);
        group->broadcast(tensor, root).wait();
        EXPECT_EQ(tensor.template to_vector<float>(),
                  std::vector<float>(static_cast<std::size_t>(n), static_cast<float>(root * 5 + 1)));
      }
    }
  });
}

TEST_P(GroupTest, AllGatherAndReduceScatter) {
  run([&](int rank, const auto& group) {
    const Tensor input = matrix(1, 3, [&](auto, auto c) { return static_cast<float>(rank * 10 + c); });
    const Tensor row = from_blob(input.data(), {3}, input.options());
    const Tensor output = matrix(size(), 3, [](auto, auto) { return -1.0F; });
    group->all_gather(output, row).wait();
    EXPECT_EQ(output.template to_vector<float>(), matrix(size(), 3, [](auto r, auto c) {
                                                    return static_cast<float>(r * 10 + c);
                                                  }).template to_vector<float>());

    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
      const Tensor rows = matrix(size(), 3, [&](auto r, auto c) { return static_cast<float>(rank + 4 * r + c); });
      const auto before = rows.template to_vector<float>();
      const Tensor mine = numbers(DType::float32, 3, -1);
      group->reduce_scatter(mine, rows, op).wait();
      std::vector<float> wanted;
      for (int c = 0; c < 3; ++c) {
        const int base = 4 * rank + c;
        wanted.push_back(
            static_cast<float>(op == ReduceOp::sum ? size() * base + size() * (size() - 1) / 2 : base + size() - 1));
      }
      EXPECT_EQ(mine.template to_vector<float>(), wanted);
      EXPECT_EQ(rows.template to_vector<float>(), before) << "the input must stay as it was";
    }
  });
}

TEST_P(GroupTest, GatherScatterAllToAll) {
  run([&](int rank, const auto& group) {
    for (int root = 0; root < size(); ++root) {
      const Tensor row = numbers(DType::int64, 2, rank + 1, 100);
      const Tensor rows = rank == root ? zeros({size(), 2}, on(DType::int64)) : Tensor();
      group->gather(rows, row, root).wait();
      if (rank == root) {
        std::vector<std::int64_t> wanted;
        for (int r = 0; r < size(); ++r) wanted.insert(wanted.end(), {r + 1, r + 101});
        EXPECT_EQ(rows.template to_vector<std::int64_t>(), wanted);
      }
      const Tensor back = zeros({2}, on(DType::int64));
      group->scatter(back, rows, root).wait();
      EXPECT_EQ(back.template to_vector<std::int64_t>(), row.template to_vector<std::int64_t>());
    }
    const Tensor out = matrix(size(), 2, [&](auto r, auto c) { return static_cast<float>(100 * rank + 10 * r + c); });
    const Tensor in = matrix(size(), 2, [](auto, auto) { return -1.0F; });
    group->all_to_all(in, out).wait();
    EXPECT_EQ(in.template to_vector<float>(), matrix(size(), 2, [&](auto r, auto c) {
                                                return static_cast<float>(100 * r + 10 * rank + c);
                                              }).template to_vector<float>());
  });
}

TEST_P(GroupTest, SendAndReceiveByTag) {
  if (size() == 1) GTEST_SKIP() << "needs a peer";
  run([&](int rank, const auto& group) {
    if (rank == 0) {
      // Both sides send first: neither may wait for the other's receive.
      const auto a = group->send(ddp::tensor<float>({1, 2}, test_device), 1, 5);
      const auto b = group->send(ddp::tensor<float>({3}, test_device), 1, 9);
      const Tensor in = numbers(DType::float32, 1, 0);
      group->recv(in, 1, 5).wait();
      a.wait();
      b.wait();
      EXPECT_EQ(in.template to_vector<float>(), (std::vector<float>{7}));
    } else if (rank == 1) {
      const auto sent = group->send(ddp::tensor<float>({7}, test_device), 0, 5);
      const Tensor late = numbers(DType::float32, 1, 0);
      const Tensor early = numbers(DType::float32, 2, 0);
      const auto second = group->recv(late, 0, 9);
      group->recv(early, 0, 5).wait();
      second.wait();
      sent.wait();
      EXPECT_EQ(early.template to_vector<float>(), (std::vector<float>{1, 2}));
      EXPECT_EQ(late.template to_vector<float>(), (std::vector<float>{3}));
    }
    group->barrier();
  });
}

TEST_P(GroupTest, BytesOfDifferentLengths) {
  run([&](int rank, const auto& group) {
    const comm::Bytes mine(static_cast<std::size_t>(rank) * 3, static_cast<std::uint8_t>(rank));
    const auto all = group->all_gather_bytes(mine);
    ASSERT_EQ(all.size(), static_cast<std::size_t>(size()));
    for (int r = 0; r < size(); ++r) {
      EXPECT_EQ(all[static_cast<std::size_t>(r)],
                comm::Bytes(static_cast<std::size_t>(r) * 3, static_cast<std::uint8_t>(r)));
    }
    const int root = size() - 1;
    EXPECT_EQ(group->broadcast_bytes(rank == root ? comm::Bytes{1, 2, 3} : comm::Bytes{}, root),
              (comm::Bytes{1, 2, 3}));
  });
}

TEST_P(GroupTest, CountsCallsAndBytes) {
  run([&](int, const auto& group) {
    const auto before = group->counters();
    group->all_reduce(numbers(DType::float32, 6, 1)).wait();
    group->all_reduce_coalesced({numbers(DType::float64, 2, 1), numbers(DType::float64, 1, 1)}).wait();
    group->all_reduce(numbers(DType::float32, 0, 1)).wait();
    const auto after = group->counters();
    EXPECT_EQ(after.collectives - before.collectives, 3U);
    EXPECT_EQ(after.bytes - before.bytes, 24U + 24U);
  });
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Groups, GroupTest, ::testing::ValuesIn(group_cases()), group_case_name);

}  // namespace ddp::test
