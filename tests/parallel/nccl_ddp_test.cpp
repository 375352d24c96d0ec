// DistributedDataParallel over NCCL: ranks are processes that share one GPU and pass for hosts of their own.
#include <gtest/gtest.h>

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

ProcessRun run_case(int size, const std::vector<std::string>& arguments) {
  launch::SpawnOptions options = process_options();
  options.time_limit = std::chrono::seconds(180);
  options.share_gpu = true;
  ProcessRun run = run_ranks(NCCL_PROGRAM, size, arguments, options);
  for (const launch::RankResult& rank : run.result.ranks) EXPECT_FALSE(is_alive(rank.pid));
  return run;
}

/// The rest of the line that begins with `name`; empty when there is none.
std::string value_of(const RankOutput& rank, const std::string& name) {
  std::istringstream lines(rank.output);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + " ")) return line.substr(name.size() + 1);
  }
  return {};
}

void expect_values(const ProcessRun& run, const std::vector<std::pair<std::string, std::string>>& values) {
  for (const RankOutput& rank : run.ranks) {
    EXPECT_EQ(rank.exit_code, 0);
    for (const auto& [name, value] : values) EXPECT_EQ(value_of(rank, name), value) << name;
  }
  if (::testing::Test::HasFailure()) ADD_FAILURE() << all_texts(run);
}

void expect_same(const ProcessRun& run, const std::string& name) {
  for (const RankOutput& rank : run.ranks) {
    EXPECT_NE(value_of(rank, name), "");
    EXPECT_EQ(value_of(rank, name), value_of(run.ranks[0], name)) << name;
  }
}

class Ranks : public testing::TestWithParam<int> {};

TEST_P(Ranks, MlpTrainsAsOneProcessWithTheWholeBatch) {
  for (const char* views : {"views", "copies"}) {
    const ProcessRun run = run_case(GetParam(), {"mlp", views});
    expect_values(run, {{"close", "1"}});
    expect_same(run, "hash");
    if (std::string(views) == "views") expect_values(run, {{"copied", "0"}});
  }
}

TEST_P(Ranks, CnnTrainsAsOneProcessWithTheWholeBatch) {
  const ProcessRun run = run_case(GetParam(), {"cnn", "views"});
  expect_values(run, {{"close", "1"}, {"copied", "0"}});
  expect_same(run, "hash");
}

// B13
TEST_P(Ranks, SumsAreOrderedWithASideStream) {
  expect_values(run_case(GetParam(), {"ordered"}), {{"wrong", "0 of 100"}});
}

INSTANTIATE_TEST_SUITE_P(Nccl, Ranks, testing::Values(2, 3, 4));

TEST(Steady, NothingBlocksNothingIsCopiedTwoLaunchesAreAdded) {
  expect_values(
      run_case(2, {"steady"}),
      {{"blocking", "0"}, {"copied", "0 0"}, {"several buckets", "1"}, {"launches added beyond the buckets", "2"}});
}

TEST(Refused, MissingGradient) {
  for (const int size : {2, 3}) {
    const ProcessRun run = run_case(size, {"refused", "missing"});
    expect_values(run, {{"unchanged", "1"}, {"changed", "1"}});
    expect_same(run, "text");
    expect_same(run, "hash");
    EXPECT_NE(value_of(run.ranks[0], "text").find("'b' got no gradient on rank 1"), std::string::npos)
        << all_texts(run);
  }
}

TEST(Refused, FrozenOnOneRank) {
  const ProcessRun run = run_case(3, {"refused", "frozen"});
  expect_values(run, {{"unchanged", "1"}, {"changed", "1"}});
  expect_same(run, "text");
  expect_same(run, "hash");
  EXPECT_NE(value_of(run.ranks[0], "text").find("'b' is frozen (requires_grad false) on rank 1"), std::string::npos)
      << all_texts(run);
}

TEST(Refused, RankThatGivesUp) {
  const ProcessRun run = run_case(3, {"refused", "gives_up"});
  expect_values(run, {{"unchanged", "1"}, {"changed", "1"}});
  expect_same(run, "hash");
  EXPECT_EQ(value_of(run.ranks[1], "text"), "bad sample 53") << all_texts(run);
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_NE(value_of(run.ranks[rank], "text").find("rank 1 left backward by an exception"), std::string::npos)
        << all_texts(run);
  }
}

TEST(Refused, DifferentModels) {
  const ProcessRun run = run_case(3, {"different"});
  for (const RankOutput& rank : run.ranks) {
    EXPECT_EQ(rank.exit_code, 1);
    EXPECT_NE(rank.errors.find("sizes of parameter 'p0': [4] on rank 0, [5] on rank 1"), std::string::npos)
        << all_texts(run);
  }
}

}  // namespace
}  // namespace ddp::test
