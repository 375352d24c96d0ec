// NCCL groups. Ranks are processes on one GPU, each of which passes for a host of its own, so they talk over loopback
// sockets. `Suite` takes a GPU for each rank where there are enough.
#include <gtest/gtest.h>

#include <chrono>

#include "comm/process_group_conformance.h"
#include "launch/process.h"
#include "support/processes.h"

namespace ddp::test {
namespace {

/// What several ranks on one GPU need, without CUDA MPS: under it a killed process can take the others with it.
launch::SpawnOptions sharing(std::chrono::seconds limit = std::chrono::seconds(90)) {
  launch::SpawnOptions options = process_options();
  options.time_limit = limit;
  options.adjust_environment = [](int rank, launch::Environment& environment) {
    environment["NCCL_HOSTID"] = concat("ddp-test-host-", rank);
    environment["NCCL_SOCKET_IFNAME"] = "lo";
    environment["NCCL_SOCKET_NTHREADS"] = "1";
    environment["NCCL_NSOCKS_PERTHREAD"] = "1";
  };
  return options;
}

std::string all_texts(const ProcessRun& run) {
  std::string text;
  for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
    const RankOutput& one = run.ranks[rank];
    text +=
        concat("--- rank ", rank, ": exit code ", one.exit_code, ", signal ", one.signal, "\n", one.output, one.errors);
  }
  return text;
}

void expect_no_process_left(const ProcessRun& run) {
  for (const auto& rank : run.result.ranks) EXPECT_FALSE(is_alive(rank.pid)) << rank.pid;
}

void expect_lines(const ProcessRun& run, const std::vector<std::string>& lines) {
  for (const auto& rank : run.ranks) {
    EXPECT_EQ(rank.exit_code, 0);
    for (const auto& line : lines) EXPECT_CONTAINS(rank.output, line);
  }
  expect_no_process_left(run);
  if (::testing::Test::HasFailure()) ADD_FAILURE() << all_texts(run);
}

/// Every rank fails by itself and before the time limit; returns what each wrote to standard error.
std::vector<std::string> failures(const std::vector<std::string>& arguments, int ranks) {
  const ProcessRun run = run_ranks(RANK_PROGRAM, ranks, arguments, sharing());
  EXPECT_FALSE(run.result.timed_out) << all_texts(run);
  std::vector<std::string> texts;
  for (const auto& rank : run.ranks) {
    EXPECT_NE(rank.exit_code, 0) << all_texts(run);
    EXPECT_FALSE(contains(rank.output, "result")) << all_texts(run);
    texts.push_back(rank.errors);
  }
  expect_no_process_left(run);
  return texts;
}

class Suite : public ::testing::TestWithParam<int> {};

// The tests that all groups pass; under CUDA MPS, if the launcher finds it.
TEST_P(Suite, Values) {
  launch::SpawnOptions options = sharing(std::chrono::seconds(280));
  options.adjust_environment = nullptr;
  options.share_gpu = true;
  const ProcessRun run = run_ranks(VALUES_RANKS, GetParam(), {}, options);
  expect_lines(run, {"PASSED"});
}

TEST_P(Suite, Structure) {
  const ProcessRun run = run_ranks(STRUCTURE_RANKS, GetParam(), {}, sharing(std::chrono::seconds(280)));
  expect_lines(run, {"PASSED"});
}

INSTANTIATE_TEST_SUITE_P(Nccl, Suite, ::testing::Values(2, 3, 4));

TEST(NcclTest, AloneNeedsNoNetwork) {
  launch::SpawnOptions options = process_options();
  options.adjust_environment = [](int, launch::Environment& environment) {
    environment["NCCL_SOCKET_IFNAME"] = "=none";  // NCCL would find no interface
  };
  const ProcessRun run = run_ranks(RANK_PROGRAM, 1, {"sum"}, options);
  expect_lines(run, {"ready nccl", "sum 1"});
}

TEST(NcclTest, GroupsOneAfterAnother) {
  expect_lines(run_ranks(RANK_PROGRAM, 2, {"cycles"}, sharing()), {"sum 3\nsum 3\nsum 3"});
}

TEST(NcclTest, OrderedAfterTheStreamThatWrites) {
  expect_lines(run_ranks(RANK_PROGRAM, 2, {"ordered"}, sharing()), {"steps 100 wrong 0"});
}

TEST(NcclTest, DroppedTensorsAreNotReused) {
  expect_lines(run_ranks(RANK_PROGRAM, 2, {"dropped"}, sharing()), {"wrong 0"});
}

TEST(NcclTest, TwoRanksOnOneGpuAreToldHow) {
  const ProcessRun run = run_ranks(RANK_PROGRAM, 2, {"sum"});
  for (const auto& rank : run.ranks) {
    EXPECT_EQ(rank.exit_code, 1);
    EXPECT_CONTAINS(rank.errors, "rank 0 and rank 1 are both on the GPU");
    EXPECT_CONTAINS(rank.errors, "--share-gpu");
  }
  expect_no_process_left(run);
}

TEST(NcclTest, ARankThatNeverComesIsNamed) {
  const ProcessRun run = run_ranks(RANK_PROGRAM, 3, {"absent", "3000", "2"}, sharing());
  EXPECT_FALSE(run.result.timed_out);
  for (int rank = 0; rank < 2; ++rank) {
    const RankOutput& one = run.ranks[static_cast<std::size_t>(rank)];
    EXPECT_EQ(one.exit_code, 1) << all_texts(run);
    EXPECT_CONTAINS(one.errors, "rank 2");
  }
  expect_no_process_left(run);
}

TEST(NcclTest, ARankThatNeverCallsIsNamed) {
  const auto texts = failures({"late", "3000"}, 3);
  for (int rank = 0; rank < 2; ++rank) {
    const auto& text = texts[static_cast<std::size_t>(rank)];
    EXPECT_CONTAINS(text, "timed out after");
    EXPECT_CONTAINS(text, "not arrived: rank 2");
    EXPECT_CONTAINS(text, "bucket 7");
    EXPECT_CONTAINS(text, "all_reduce #3");  // after the barrier of the start and the first sum
  }
  EXPECT_CONTAINS(texts[2], "all_reduce");
}

TEST(NcclTest, TheCallsOwnTimeOutCounts) {
  const auto texts = failures({"own_limit", "60000"}, 2);
  EXPECT_CONTAINS(texts[0], "barrier");
}

TEST(NcclTest, AKilledRankIsNamed) {
  const ProcessRun run = run_ranks(RANK_PROGRAM, 3, {"killed", "15000"}, sharing());
  EXPECT_FALSE(run.result.timed_out) << all_texts(run);
  EXPECT_EQ(run.ranks[2].signal, SIGKILL);
  for (int rank = 0; rank < 2; ++rank) {
    const RankOutput& one = run.ranks[static_cast<std::size_t>(rank)];
    EXPECT_EQ(one.exit_code, 1) << all_texts(run);
    EXPECT_CONTAINS(one.errors, "rank 2");
    EXPECT_CONTAINS(one.errors, "bucket 7");
  }
  expect_no_process_left(run);
}

TEST(NcclTest, DifferentCallsAreNamed) {
  for (const auto& text : failures({"kinds", "15000"}, 2)) {
    EXPECT_CONTAINS(text, "broadcast(root 0) of 16000000 x float32");
    EXPECT_CONTAINS(text, "all_reduce(sum) of 16000000 x float32");
  }
}

TEST(NcclTest, DifferentSizesAreNamed) {
  for (const auto& text : failures({"sizes", "15000"}, 2)) {
    EXPECT_CONTAINS(text, "1000000 x float32");
    EXPECT_CONTAINS(text, "12000000 x float32");
  }
}

TEST(NcclTest, CheckedCollectivesCompareLabels) {
  for (const auto& text : failures({"checked", "15000"}, 3)) {
    EXPECT_CONTAINS(text, "left");
    EXPECT_CONTAINS(text, "right");
  }
}

TEST(NcclTest, AbortReachesEveryRank) {
  for (const auto& text : failures({"abort", "30000"}, 3)) EXPECT_CONTAINS(text, "the disk is full");
}

TEST(NcclTest, AGroupThatEndsWhileUnwindingEndsThePeersCalls) {
  const auto texts = failures({"unwind", "20000"}, 2);
  EXPECT_CONTAINS(texts[0], "no such file");
  EXPECT_CONTAINS(texts[1], "destroyed while an exception is on its way");
}

TEST(NcclTest, MessagesThatDifferAreNamed) {
  for (const auto& text : failures({"message", "15000"}, 2)) {
    EXPECT_CONTAINS(text, "sent a message of 5 x float32");
    EXPECT_CONTAINS(text, "expected a message of 4 x float32");
  }
}

}  // namespace
}  // namespace ddp::test
