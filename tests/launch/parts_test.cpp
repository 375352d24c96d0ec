// The launcher's parts that need no processes: lines, placement, the search for the first failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "launch/binding.h"
#include "launch/output.h"
#include "launch/summary.h"

namespace ddp::launch {
namespace {

using Lines = std::vector<std::string>;

Lines split(const std::vector<std::string>& pieces) {
  Lines lines;
  LineSplitter splitter;
  const auto emit = [&](std::string_view line) { lines.emplace_back(line); };
  for (const auto& piece : pieces) splitter.feed(piece, emit);
  splitter.finish(emit);
  return lines;
}

TEST(LineSplitter, CutsWhereLinesEndHoweverTheBytesArrive) {
  const std::string text = "one\n\ntwo\r\n\r\nthree\rfour\r\r\nfive";
  const Lines expected = {"one", "", "two", "", "three", "four", "", "five"};
  EXPECT_EQ(split({text}), expected);
  for (std::size_t at = 0; at <= text.size(); ++at) {
    EXPECT_EQ(split({text.substr(0, at), text.substr(at)}), expected) << "cut at " << at;
  }
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  EXPECT_EQ(split(bytes), expected);
}

TEST(LineSplitter, ShowsProgressLines) {
  EXPECT_EQ(split({"\r10%", "\r20%", "\rdone\n"}), (Lines{"10%", "20%", "done"}));
}

TEST(LineSplitter, CutsEndlessLines) {
  const std::string piece(LineSplitter::kMaxLine, 'x');
  EXPECT_EQ(split({piece + "y\n"}), (Lines{piece, "y"}));
  EXPECT_EQ(split({piece + "\n", "z"}), (Lines{piece, "z"}));
}

std::vector<std::vector<int>> cores(int count, int cpus_each = 1) {
  std::vector<std::vector<int>> result(static_cast<std::size_t>(count));
  for (int i = 0; i < count * cpus_each; ++i) result[static_cast<std::size_t>(i / cpus_each)].push_back(i);
  return result;
}

TEST(PlaceRanks, DividesCoresInContiguousShares) {
  const auto two = place_ranks(2, cores(2), true, std::nullopt);
  EXPECT_EQ(two.text, "2 ranks on 2 cores: 1 core and 1 thread each");
  EXPECT_EQ(two.cpus, (std::vector<std::vector<int>>{{0}, {1}}));
  EXPECT_EQ(two.threads, 1);

  const auto uneven = place_ranks(2, cores(5), true, std::nullopt);
  EXPECT_EQ(uneven.text, "2 ranks on 5 cores: 2 or 3 cores and 2 threads each");
  EXPECT_EQ(uneven.cpus, (std::vector<std::vector<int>>{{0, 1}, {2, 3, 4}}));
  EXPECT_EQ(uneven.threads, 2);

  // Two logical CPUs a core: both go with their core, and threads are counted in cores.
  const auto smt = place_ranks(2, cores(4, 2), true, std::nullopt);
  EXPECT_EQ(smt.text, "2 ranks on 4 cores: 2 cores and 2 threads each");
  EXPECT_EQ(smt.cpus, (std::vector<std::vector<int>>{{0, 1, 2, 3}, {4, 5, 6, 7}}));

  const auto one = place_ranks(1, cores(8), true, std::nullopt);
  EXPECT_EQ(one.text, "1 rank on 8 cores: 8 cores and 8 threads");
}

TEST(PlaceRanks, DoesNotBindWhereItWouldHurt) {
  const auto many = place_ranks(4, cores(2), true, std::nullopt);
  EXPECT_EQ(many.text, "4 ranks on 2 cores: not bound, 1 thread each");
  EXPECT_EQ(many.cpus, std::vector<std::vector<int>>(4));
  EXPECT_EQ(many.threads, 1);

  const auto asked = place_ranks(2, cores(8), false, std::nullopt);
  EXPECT_EQ(asked.text, "2 ranks on 8 cores: not bound (--no-bind), 4 threads each");
  EXPECT_EQ(asked.cpus, std::vector<std::vector<int>>(2));
  EXPECT_EQ(asked.threads, 4);

  const auto kept = place_ranks(2, cores(2), true, "3");
  EXPECT_EQ(kept.text, "2 ranks on 2 cores: 1 core, OMP_NUM_THREADS=3 kept");
  EXPECT_FALSE(kept.set_threads);
}

TEST(UsableCores, AreAllDifferent) {
  std::vector<int> seen;
  for (const auto& core : usable_cores()) {
    EXPECT_FALSE(core.empty());
    seen.insert(seen.end(), core.begin(), core.end());
  }
  EXPECT_FALSE(seen.empty());
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
}

std::vector<RankResult> failed_ranks(const std::vector<std::string>& errors) {
  std::vector<RankResult> ranks;
  for (const auto& error : errors) {
    RankResult rank;
    rank.rank = static_cast<int>(ranks.size());
    rank.exit_code = 1;
    rank.last_errors = {error};
    ranks.push_back(rank);
  }
  return ranks;
}

TEST(Summary, SaysAnErrorThatAllRanksHaveOnce) {
  RunResult run;
  run.ranks = failed_ranks({"no such file", "no such file", "another"});
  run.first_failure = 1;
  const std::string text = summarize(run);
  EXPECT_NE(text.find("  error: no such file\n  secondary:\n    rank 0: exit code 1: the same error\n"
                      "    rank 2: exit code 1: another\n"),
            std::string::npos)
      << text;
}

TEST(FirstFailure, IsTheEarliestUnlessItNamesAnother) {
  EXPECT_EQ(find_first_failure(failed_ranks({"a", "b"}), {}), std::nullopt);
  EXPECT_EQ(find_first_failure(failed_ranks({"a", "b", "c"}), {2, 0}), 2);
  // 2 names 0, 0 names 1, which has a reason of its own.
  const auto chain = failed_ranks({"rank 0: rank 1 closed the connection", "rank 1: bad sample 17", "lost rank 0"});
  EXPECT_EQ(find_first_failure(chain, {2, 0, 1}), 1);
  // 2 lost both others, and 0 says who went first.
  const auto both = failed_ranks({"lost rank 1", "bad gradient 29", "rank 2: lost rank 0, rank 1"});
  EXPECT_EQ(find_first_failure(both, {2, 0, 1}), 1);
  EXPECT_EQ(find_first_failure(failed_ranks({"lost rank 1, rank 2", "", "rank 2: lost rank 0, rank 1"}), {0, 2, 1}), 1);
  // The rank named has not failed, or two of them name nobody, or they name each other: the time decides.
  EXPECT_EQ(find_first_failure(chain, {2, 1}), 2);
  EXPECT_EQ(find_first_failure(failed_ranks({"a", "b", "rank 0 or rank 1 is gone"}), {2, 0, 1}), 2);
  EXPECT_EQ(find_first_failure(failed_ranks({"rank 1 is gone", "rank 0 is gone"}), {1, 0}), 1);
  EXPECT_EQ(find_first_failure(failed_ranks({"a", "crank 0"}), {1, 0}), 1);
}

TEST(ErrorLine, IsTheExceptionsTextOrTheLastLine) {
  EXPECT_EQ(error_line({}), "");
  EXPECT_EQ(error_line({"first", "last", "  "}), "last");
  EXPECT_EQ(error_line({"terminate called after throwing an instance of 'std::runtime_error'",
                        "  what():  bad sample 17", "Aborted"}),
            "bad sample 17");
}

}  // namespace
}  // namespace ddp::launch
