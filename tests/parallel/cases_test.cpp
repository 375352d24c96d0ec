// Known failures of data-parallel training, by the numbers of docs/cases.md, with ranks that are processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "launch/process.h"
#include "support/processes.h"

namespace ddp::test {
namespace {

const std::string kProgram = CASE_PROGRAM;

/// Every rank ends by itself, well before the time limit; a rank that blocks is found by its signal.
ProcessRun run_case(int size, const std::vector<std::string>& arguments,
                    const std::vector<std::pair<std::string, std::string>>& variables = {}) {
  launch::SpawnOptions options = process_options();
  options.adjust_environment = [&](int, launch::Environment& environment) {
    for (const auto& [name, value] : variables) environment[name] = value;
  };
  ProcessRun run = run_ranks(kProgram, size, arguments, options);
  for (const launch::RankResult& rank : run.result.ranks) EXPECT_FALSE(is_alive(rank.pid));
  return run;
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

void expect_lines(int size, const std::vector<std::string>& arguments, const std::vector<std::string>& lines) {
  const ProcessRun run = run_case(size, arguments);
  for (const RankOutput& rank : run.ranks) {
    EXPECT_EQ(rank.exit_code, 0) << rank.errors;
    for (const std::string& line : lines) EXPECT_TRUE(has_line(rank.output, line)) << line << "\n" << rank.output;
  }
}

/// Code 1 from every rank, by an error that has all the texts.
ProcessRun expect_failure(int size, const std::vector<std::string>& arguments, const std::vector<std::string>& texts,
                          const std::vector<std::pair<std::string, std::string>>& variables = {}) {
  ProcessRun run = run_case(size, arguments, variables);
  for (const RankOutput& rank : run.ranks) {
    EXPECT_EQ(rank.exit_code, 1) << "signal " << rank.signal << " " << rank.errors;
    for (const std::string& text : texts) {
      EXPECT_NE(rank.errors.find(text), std::string::npos) << "no '" << text << "' in: " << rank.errors;
    }
  }
  return run;
}

TEST(B01, AccumulationAveragesTheSumOfAllMicroBatches) {
  for (const char* cover : {"both", "backward"}) {
    const ProcessRun run = run_case(2, {"no_sync", cover, "6,7", "10,21"});
    EXPECT_EQ(run.ranks[0].output, "first 6 sent 0\nsecond 22 sent 1\n") << run.ranks[0].errors;
    EXPECT_EQ(run.ranks[1].output, "first 7 sent 0\nsecond 22 sent 1\n") << run.ranks[1].errors;
  }
  const ProcessRun run = run_case(2, {"no_sync", "inverted", "6,7", "10,21"});
  EXPECT_EQ(run.ranks[0].output, "first 6.5 sent 1\nsecond 16.5 sent 1\n") << run.ranks[0].errors;
  EXPECT_EQ(run.ranks[1].output, "first 6.5 sent 1\nsecond 27.5 sent 1\n") << run.ranks[1].errors;
}

TEST(B02, AnUnusedParameterStopsTheOnlyStepOnAllRanks) {
  struct Case {
    const char* uses;
    const char* ranks;
  };
  for (const Case& one : {Case{"0,0,0", "all 3 ranks"}, Case{"1,0,1", "rank 1"}, Case{"0,1,1", "rank 0"}}) {
    const ProcessRun run =
        expect_failure(3, {"unused", "2,4,9", one.uses}, {concat("'b' got no gradient on ", one.ranks)});
    for (const RankOutput& rank : run.ranks) EXPECT_EQ(rank.output, "a 7 b 8\n");  // the optimiser changed nothing
  }
  expect_lines(1, {"unused", "2", "0"}, {"gradient 2 none"});
}

TEST(B04, ATiedParameterIsReducedAndSteppedOnce) {
  // Locals 2wx: 15 and 35. Also after moving to another device and back, and after save and load.
  for (const char* moved : {"stay", "move"}) {
    expect_lines(2, {"tied", "2.5", "3,7", "0.0625", moved},
                 {"parameters 1 slots 1", "gradient 25", "weights 0.9375 0.9375", "gradient 0", "loaded 0.9375 0.9375",
                  "shared true true"});
  }
}

TEST(B08, TheDivisorIsTheNumberOfRanks) {
  expect_lines(3, {"average", "1", "2,3,13", "float32"}, {"mean 6"});
  const ProcessRun sizes = run_case(2, {"average", "1,2,3,6,999", "5,6", "float32"});
  for (const RankOutput& rank : sizes.ranks) {
    EXPECT_EQ(rank.output, "mean 5.5\nmean 5.5\nmean 5.5\nmean 5.5\nmean 5.5\n") << rank.errors;
  }
  expect_failure(2, {"average", "1,2", "5,6", "int32"}, {"gradient 'p0' is int32"});
  expect_lines(2, {"batches", "4,1", "1,8"}, {"gradient 4.5"});
  expect_failure(2, {"twice", "2,5"}, {"'w' belongs to a module that is wrapped already"});
  expect_lines(3, {"by_hand", "1,2,6"}, {"gradient 3"});
}

TEST(B09, ARankThatIsDoneBeforeTheOthersIsNamed) {
  const ProcessRun run = run_case(2, {"steps", "4,3"});
  EXPECT_EQ(run.ranks[0].exit_code, 1);
  EXPECT_NE(run.ranks[0].errors.find("rank 1"), std::string::npos) << run.ranks[0].errors;
  EXPECT_NE(run.ranks[0].errors.find("bucket 0: w"), std::string::npos) << run.ranks[0].errors;
  EXPECT_TRUE(has_line(run.ranks[0].output, "step 2 1.5"));
  EXPECT_FALSE(has_line(run.ranks[0].output, "step 3 1"));
  EXPECT_NE(run.result.exit_code, 0);
}

class B19 : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(B19, TheRankThatFailedFirstIsNamedAndAllEnd) {
  launch::SpawnOptions options = process_options();
  options.end_others = true;
  options.settle = std::chrono::seconds(10);  // the rank at fault may be slow to end, under a sanitizer
  const auto& how = GetParam();
  const ProcessRun run = run_ranks(kProgram, 3, {"fails", how[0], "1", "3"}, options);
  EXPECT_EQ(run.result.exit_code, std::stoi(how[1]));
  EXPECT_EQ(run.result.first_failure, 1);
  EXPECT_EQ(run.result.summary.rfind("rank 1 failed first: " + how[2], 0), 0U) << run.result.summary;
  EXPECT_NE(run.result.summary.find(how[3]), std::string::npos) << run.result.summary;
  const std::size_t secondary = run.result.summary.find("secondary:");
  ASSERT_NE(secondary, std::string::npos) << run.result.summary;
  for (const char* other : {"rank 0: ", "rank 2: "}) {
    EXPECT_NE(run.result.summary.find(other, secondary), std::string::npos) << run.result.summary;
  }
  EXPECT_FALSE(run.result.timed_out);
  for (const launch::RankResult& rank : run.result.ranks) EXPECT_FALSE(is_alive(rank.pid));
  for (const RankOutput& rank : run.ranks) EXPECT_FALSE(has_line(rank.output, "finished 1"));
}

INSTANTIATE_TEST_SUITE_P(Ways, B19,
                         testing::Values(std::vector<std::string>{"throw", "1", "exit code 1", "bad sample 41"},
                                         std::vector<std::string>{"hook", "1", "exit code 1", "bad gradient 29"},
                                         std::vector<std::string>{"exit", "3", "exit code 3", ""},
                                         std::vector<std::string>{"kill", "137", "killed by SIGKILL", ""}));

TEST(B20, DifferentModelsAreNamedOnAllRanks) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"shape", {"sizes of parameter 'weight': [7, 4] on rank 0, [7, 5] on rank 1"}},
      {"no_bias", {"'bias' [7] float32 on rank 0, none on rank 1", "2 parameters on rank 0, 1 on rank 1"}},
      {"dtype", {"dtype of parameter 'weight': float32 on rank 0, float64 on rank 1"}},
      {"empty", {"'weight' [7, 4] float32 on rank 0, none on rank 1", "2 parameters on rank 0, 0 on rank 1"}},
      {"buffer", {"buffer 1: none on rank 0, 'extra' [2] float32 on rank 1"}},
  };
  for (const auto& [kind, texts] : cases) expect_failure(2, {"model", kind, "1"}, texts);
  expect_failure(3, {"model", "shape", "0"}, {"[7, 5] on rank 0, [7, 4] on rank 1"});
}

TEST(B20, RawCollectivesThatDifferGiveNoResult) {
  using Variables = std::vector<std::pair<std::string, std::string>>;
  for (const Variables& variables : {Variables{}, Variables{{"CASE_CHECKS", "1"}}}) {
    const auto sizes =
        expect_failure(2, {"raw", "sizes", "110,230"},
                       {"all_reduce", "my sum", "110 x float32", "230 x float32", "rank 0", "rank 1"}, variables);
    const auto dtypes =
        expect_failure(2, {"raw", "dtypes", "240,120"},
                       {"all_reduce", "my sum", "240 x float32", "120 x float64", "rank 0", "rank 1"}, variables);
    for (const ProcessRun* run : {&sizes, &dtypes}) {
      for (const RankOutput& rank : run->ranks) EXPECT_EQ(rank.output, "");
    }
  }
}

/// One list an epoch.
std::vector<std::vector<int>> indices(const RankOutput& rank) {
  std::vector<std::vector<int>> result;
  std::istringstream in(rank.output);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    EXPECT_EQ(word, "indices");
    result.emplace_back();
    for (int index = 0; words >> index;) result.back().push_back(index);
  }
  return result;
}

std::vector<std::vector<std::vector<int>>> sampled(int size, const std::string& epochs,
                                                   const std::string& seeds = "none",
                                                   const std::string& agree = "plain", int warnings = 0) {
  const ProcessRun run = run_case(size, {"sampler", "24", epochs, seeds, agree});
  std::vector<std::vector<std::vector<int>>> result;
  for (const RankOutput& rank : run.ranks) {
    EXPECT_EQ(rank.exit_code, 0) << rank.errors;
    EXPECT_EQ(numbers_after(rank.errors, "warning:").size(), static_cast<std::size_t>(warnings)) << rank.errors;
    result.push_back(indices(rank));
  }
  return result;
}

TEST(B28, SharesNeverOverlap) {
  std::vector<int> all(24);
  std::iota(all.begin(), all.end(), 0);
  const auto covers = [&](const std::vector<std::vector<std::vector<int>>>& shares, std::size_t epoch) {
    std::vector<int> joined;
    for (const auto& rank : shares) joined.insert(joined.end(), rank.at(epoch).begin(), rank.at(epoch).end());
    std::sort(joined.begin(), joined.end());
    return joined == all;
  };
  const auto none = sampled(3, "0,4");
  EXPECT_TRUE(covers(none, 0) && covers(none, 1));
  EXPECT_TRUE(covers(sampled(2, "0", "19,19", "agree"), 0));
  expect_failure(2, {"sampler", "24", "0", "5,6", "agree"}, {"rank 0 has 5, rank 1 has 6"});
  const auto run = expect_failure(2, {"sampler", "24", "0", "5,6", "plain"}, {"seed ", "agree_seed"});
  EXPECT_EQ(run.ranks[0].output + run.ranks[1].output, "");
}

TEST(B28, TheEpochDecidesTheOrderInEveryRunAndLoader) {
  const auto once = sampled(2, "0,1,0");
  for (const auto& rank : once) {
    EXPECT_NE(rank.at(0), rank.at(1));
    EXPECT_EQ(rank.at(0), rank.at(2));
  }
  EXPECT_EQ(sampled(2, "0,1,0"), once);
  // Set once, then the loader is made anew twice: still epoch 1, and one warning.
  const auto kept = sampled(2, "1,-,-", "none", "plain", 1);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::size_t pass = 0; pass < 3; ++pass) EXPECT_EQ(kept[rank].at(pass), once[rank].at(1));
  }
  sampled(2, "-,-,-", "none", "plain", 1);
}

}  // namespace
}  // namespace ddp::test
