// DistributedDataParallel over NCCL: ranks are processes, each with a GPU of its own where there are enough; else they
// share and pass for hosts of their own.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <sstream>

#include "launch/process.h"
#include "support/processes.h"

namespace ddp::test {
namespace {

std::string all_texts(const ProcessRun& run) {
  std::string text;
  for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
    const RankOutput& one = run.ranks[rank];
    text +=
        concat("--- rank ", rank, ": exit code ", one.exit_code, ", signal ", one.signal, "\n", one.output, one.errors);
  }
  return text;
}

/// All that is tested with so many ranks, in one group: to start ranks and connect them is most of the time.
const ProcessRun& run_of(int size) {
  static std::map<int, ProcessRun> runs;
  const auto [at, first] = runs.try_emplace(size);
  if (first) {
    launch::SpawnOptions options = process_options();
    options.time_limit = std::chrono::seconds(100);
    options.share_gpu = true;
    at->second = run_ranks(
        NCCL_PROGRAM, size,
        {"mlp", "mlp copied", "cnn", "steady", "ordered", "missing", "frozen", "gives up", "different"}, options);
    std::printf("%s", all_texts(at->second).c_str());
    for (const launch::RankResult& rank : at->second.result.ranks) EXPECT_FALSE(is_alive(rank.pid));
  }
  return at->second;
}

/// The rest of the line that begins with `name`; empty when there is none.
std::string value_of(const RankOutput& rank, const std::string& name) {
  std::istringstream lines(rank.output);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + " ")) return line.substr(name.size() + 1);
  }
  return {};
}

void expect_value(int size, const std::string& name, const std::string& value) {
  for (const RankOutput& rank : run_of(size).ranks) EXPECT_EQ(value_of(rank, name), value) << name;
}

void expect_same(int size, const std::string& name) {
  for (const RankOutput& rank : run_of(size).ranks) {
    EXPECT_NE(value_of(rank, name), "") << name;
    EXPECT_EQ(value_of(rank, name), value_of(run_of(size).ranks[0], name)) << name;
  }
}

void expect_text(int size, const std::string& name, const std::string& part) {
  for (const RankOutput& rank : run_of(size).ranks) {
    EXPECT_NE(value_of(rank, name).find(part), std::string::npos) << name << " has no '" << part << "'";
  }
}

class NcclRanks : public testing::TestWithParam<int> {};

TEST_P(NcclRanks, TrainAsOneProcessWithTheWholeBatch) {
  for (const std::string model : {"mlp", "mlp copied", "cnn"}) {
    expect_value(GetParam(), model + ": close", "true");
    expect_same(GetParam(), model + ": hash");
  }
  for (const std::string model : {"mlp", "cnn"}) expect_value(GetParam(), model + ": copied", "0");
}

// B13
TEST_P(NcclRanks, SumsAreOrderedWithASideStream) { expect_value(GetParam(), "ordered: wrong", "0 of 100"); }

TEST_P(NcclRanks, NothingBlocksNothingIsCopiedTwoLaunchesAreAdded) {
  expect_value(GetParam(), "steady: blocking", "0");
  expect_value(GetParam(), "steady: copied", "0 0");
  expect_value(GetParam(), "steady: several buckets", "true");
  expect_value(GetParam(), "steady: launches added beyond the buckets", "2");
}

TEST_P(NcclRanks, ABadPassIsRefusedEverywhereAndTrainingGoesOn) {
  for (const std::string kind : {"missing", "frozen", "gives up"}) {
    expect_value(GetParam(), kind + ": unchanged", "true");
    expect_value(GetParam(), kind + ": changed", "true");
    expect_same(GetParam(), kind + ": hash");
  }
  expect_text(GetParam(), "missing: text", "'b' got no gradient on rank 1");
  expect_text(GetParam(), "frozen: text", "'b' is frozen (requires_grad false) on rank 1");
  expect_same(GetParam(), "missing: text");
  expect_same(GetParam(), "frozen: text");
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(GetParam()); ++rank) {
    const std::string text = value_of(run_of(GetParam()).ranks[rank], "gives up: text");
    EXPECT_NE(text.find(rank == 1 ? "bad sample 53" : "rank 1 left backward by an exception"), std::string::npos)
        << text;
  }
}

TEST_P(NcclRanks, DifferentModelsAreRefused) {
  for (const RankOutput& rank : run_of(GetParam()).ranks) {
    EXPECT_EQ(rank.exit_code, 1);
    EXPECT_NE(rank.errors.find("sizes of parameter 'p0': [4] on rank 0, [5] on rank 1"), std::string::npos)
        << rank.errors;
  }
}

TEST(NcclGroupThatEnds, TakesNoUpdateBehindSumsThatItCutShort) {
  launch::SpawnOptions options = process_options();
  options.time_limit = std::chrono::seconds(100);
  options.share_gpu = true;
  const ProcessRun run = run_ranks(NCCL_PROGRAM, 2, {"aborted"}, options);
  std::printf("%s", all_texts(run).c_str());
  for (const RankOutput& rank : run.ranks) {
    EXPECT_EQ(rank.exit_code, 0);
    EXPECT_EQ(value_of(rank, "aborted: unchanged"), "true");
    EXPECT_NE(value_of(rank, "aborted: text").find("operator pressed stop"), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, NcclRanks, testing::Values(2, 3, 4));

}  // namespace
}  // namespace ddp::test
