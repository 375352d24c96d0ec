// Lanes, subgroups, many groups at once, works in flight.
#include "comm/group_cases.h"
#include "comm/process_group_conformance.h"
#include "support/recording_group.h"

namespace ddp::test {
namespace {

using comm::ReduceOp;

TEST_P(GroupTest, ManyInFlightInOrder) {
  run([&](int rank, const auto& group) {
    std::vector<Tensor> tensors;
    std::vector<comm::Work> works;
    for (int i = 0; i < 20; ++i) {
      tensors.push_back(numbers(DType::float32, 50 + i * 400, rank + i));
      works.push_back(group->all_reduce(tensors.back()));
    }
    for (auto& work : works) work.wait();
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(tensors[static_cast<std::size_t>(i)].template to_vector<float>(),
                std::vector<float>(static_cast<std::size_t>(50 + i * 400),
                                   static_cast<float>(size() * i) + static_cast<float>(size() * (size() - 1)) / 2));
      const auto& work = works[static_cast<std::size_t>(i)];
      EXPECT_TRUE(work.is_completed());
      EXPECT_FALSE(work.error());
      if (size() > 1) {
        EXPECT_GT(work.started_ns(), 0);
        EXPECT_GE(work.ended_ns(), work.started_ns());
      }
    }
  });
}

TEST_P(GroupTest, LanesRunSideBySide) {
  run([&](int rank, const auto& group) {
    group->ensure_lanes(3);
    ASSERT_GE(group->lanes(), 3);
    for (int round = 0; round < 10; ++round) {
      std::vector<Tensor> tensors;
      std::vector<comm::Work> works;
      for (int lane = 0; lane < 3; ++lane) {
        tensors.push_back(numbers(DType::float32, 30'000 + lane, rank + 10 * lane));
        works.push_back(group->all_reduce(tensors.back(), ReduceOp::sum, {.lane = lane}));
      }
      for (auto& work : works) work.wait();
      for (int lane = 0; lane < 3; ++lane) {
        EXPECT_EQ(tensors[static_cast<std::size_t>(lane)].template to_vector<float>(),
                  std::vector<float>(static_cast<std::size_t>(30'000 + lane),
                                     static_cast<float>(size() * (size() - 1) / 2 + 10 * lane * size())));
      }
    }
  });
}

TEST_P(GroupTest, LanesRunSideBySideInAnyOrder) {
  if (GetParam().backend == "nccl") GTEST_SKIP() << "NCCL wants one order over all lanes";
  run([&](int rank, const auto& group) {
    group->ensure_lanes(3);
    ASSERT_GE(group->lanes(), 3);
    for (int round = 0; round < 10; ++round) {
      std::vector<Tensor> tensors(3);
      std::vector<comm::Work> works(3);
      for (int i = 0; i < 3; ++i) {
        // Each rank issues the lanes in another order.
        const int lane = (i + rank + round) % 3;
        const auto at = static_cast<std::size_t>(lane);
        tensors[at] = numbers(DType::float32, 30'000 + lane, rank + 10 * lane);
        works[at] = group->all_reduce(tensors[at], ReduceOp::sum, {.lane = lane});
      }
      for (auto& work : works) work.wait();
      for (int lane = 0; lane < 3; ++lane) {
        EXPECT_EQ(tensors[static_cast<std::size_t>(lane)].template to_vector<float>(),
                  std::vector<float>(static_cast<std::size_t>(30'000 + lane),
                                     static_cast<float>(size() * (size() - 1) / 2 + 10 * lane * size())));
      }
    }
  });
}

TEST_P(GroupTest, ABlockedLaneHoldsUpNoOther) {
  if (size() == 1) GTEST_SKIP() << "needs a peer";
  if (GetParam().backend == "nccl") GTEST_SKIP() << "NCCL wants one order over all lanes";
  run([&](int rank, const auto& group) {
    group->ensure_lanes(2);
    comm::Work first;
    const Tensor slow = numbers(DType::float32, 4, rank);
    if (rank == 0) first = group->all_reduce(slow);
    for (int i = 0; i < 5; ++i) {
      const Tensor tensor = numbers(DType::float32, 2, 1);
      group->all_reduce(tensor, ReduceOp::sum, {.lane = 1}).wait();
      EXPECT_EQ(tensor.template to_vector<float>()[0], static_cast<float>(size()));
    }
    if (rank != 0) first = group->all_reduce(slow);
    first.wait();
    EXPECT_EQ(slow.template to_vector<float>()[3], static_cast<float>(size() * (size() - 1) / 2));
  });
}

TEST_P(GroupTest, SplitByColourAndKey) {
  run([&](int rank, const auto& group) {
    // Even and odd ranks, in reverse order.
    const auto half = group->split(rank % 2, -rank);
    ASSERT_TRUE(half);
    const int members = (size() + (rank % 2 == 0 ? 1 : 0)) / 2;
    EXPECT_EQ(half->size(), members);
    EXPECT_EQ(half->rank(), members - 1 - rank / 2);
    EXPECT_EQ(half->backend(), group->backend());
    const Tensor sum = numbers(DType::int64, 1, rank);
    half->all_reduce(sum).wait();
    int wanted = 0;
    for (int r = rank % 2; r < size(); r += 2) wanted += r;
    EXPECT_EQ(sum.template to_vector<std::int64_t>()[0], wanted);
    // The parent works beside it.
    const Tensor all = numbers(DType::int64, 1, 1);
    const auto work = group->all_reduce(all);
    half->barrier();
    work.wait();
    EXPECT_EQ(all.template to_vector<std::int64_t>()[0], size());
  });
}

TEST_P(GroupTest, NewGroupOfSomeRanks) {
  run([&](int rank, const auto& group) {
    for (int round = 0; round < 2; ++round) {
      std::vector<int> ranks{size() - 1};
      if (size() > 2) ranks.push_back(0);
      const auto part = group->new_group(ranks);
      const auto place = std::ranges::find(ranks, rank);
      ASSERT_EQ(part != nullptr, place != ranks.end());
      if (!part) continue;
      EXPECT_EQ(part->rank(), place - ranks.begin());
      const Tensor tensor = numbers(DType::float32, 1, rank);
      part->broadcast(tensor, 0).wait();
      EXPECT_EQ(tensor.template to_vector<float>()[0], static_cast<float>(size() - 1));
    }
  });
}

TEST_P(GroupTest, RecordingGroupForwardsAndRecords) {
  if (size() == 1) GTEST_SKIP() << "with one rank nothing reaches a backend";
  run([&](int rank, const auto& group) {
    RecordingGroup recording(group);
    recording.ensure_lanes(2);
    recording.set_delay(std::chrono::milliseconds(30));
    const Tensor tensor = numbers(DType::float32, 6, rank);
    const auto issued = std::chrono::steady_clock::now();
    const auto work = recording.all_reduce(tensor, ReduceOp::max, {.label = "bucket 1", .lane = 1});
    EXPECT_FALSE(work.is_completed());
    work.wait();
    EXPECT_GE(std::chrono::steady_clock::now() - issued, std::chrono::milliseconds(30));
    EXPECT_EQ(tensor.template to_vector<float>()[5], static_cast<float>(size() - 1));
    const Tensor rows = empty({size(), 6}, on());
    recording.all_gather(rows, tensor).wait();
    recording.all_reduce_coalesced({tensor, numbers(DType::float32, 2, 0)}).wait();
    recording.barrier();
    const auto calls = recording.calls();
    ASSERT_EQ(calls.size(), 4U);
    EXPECT_EQ(calls[0].kind, comm::CollectiveKind::all_reduce);
    EXPECT_EQ(calls[0].op, ReduceOp::max);
    EXPECT_EQ(calls[0].label, "bucket 1");
    EXPECT_EQ(calls[0].lane, 1);
    EXPECT_EQ(calls[0].data, tensor.data());
    EXPECT_EQ(calls[1].kind, comm::CollectiveKind::all_gather);
    EXPECT_EQ(calls[1].elements, (std::vector<std::int64_t>{size() * 6}));
    EXPECT_EQ(calls[2].elements, (std::vector<std::int64_t>{6, 2}));
    EXPECT_EQ(calls[2].sequence, 2U);
    EXPECT_EQ(calls[3].kind, comm::CollectiveKind::barrier);
    EXPECT_LE(calls[0].time_ns, calls[3].time_ns);
  });
}

TEST_P(GroupTest, ARankThatThrowsFreesTheOthers) {
  if (size() == 1) GTEST_SKIP() << "needs a peer";
  if (kRanksAreProcesses) GTEST_SKIP() << "of ranks that are threads";
  const auto text = error_text<InvalidArgument>([&] {
    run([&](int rank, const auto& group) {
      if (rank == 0) throw InvalidArgument("bad input on rank 0");
      group->barrier();
    });
  });
  EXPECT_EQ(text, "bad input on rank 0");
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Groups, GroupTest, ::testing::ValuesIn(group_cases()), group_case_name);

}  // namespace ddp::test
