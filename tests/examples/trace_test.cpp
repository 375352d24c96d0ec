// --trace: the files of a run on two ranks, and what they say about overlap.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "programs.h"

namespace ddp::test {
namespace {

using Json = nlohmann::json;

struct Piece {
  double begin = 0;
  double end = 0;
};

/// The spans of a kind by (rank, step).
std::map<std::pair<int, int>, std::vector<Piece>> pieces(const Json& trace, const std::string& kind) {
  std::map<std::pair<int, int>, std::vector<Piece>> found;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X" || event.value("cat", "") != kind) continue;
    const double begin = event["ts"];
    found[{event["pid"], event["args"]["step"]}].push_back({begin, begin + event["dur"].get<double>()});
  }
  return found;
}

TEST(Trace, CollectivesOfTwoRanksLieInsideBackward) {
  constexpr int kSteps = 4;
  const SmallData data;
  const TempFolder folder;
  const std::string where = (folder / "made" / "by the run").string();
  const Ended run =
      run_program({DDP_COMMAND, "run", "-n", "2", "--no-bind", "--", TRAIN_CNN, "--data", data.path(), "--steps",
                   std::to_string(kSteps), "--batch-size", "4", "--bucket-cap-mb", "0.5", "--trace", where});
  ASSERT_EQ(run.code, 0) << run.errors;
  for (const char* name : {"rank-0.jsonl", "rank-1.jsonl", "rank-0.trace.json", "rank-1.trace.json"}) {
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(where) / name)) << name;
  }
  const Json trace = Json::parse(std::ifstream(std::filesystem::path(where) / "trace.json"));
  const auto backward = pieces(trace, "backward");
  const auto collectives = pieces(trace, "collective");
  EXPECT_EQ(pieces(trace, "forward").size(), 2U * kSteps);
  EXPECT_EQ(pieces(trace, "optimizer").size(), 2U * kSteps);
  ASSERT_EQ(backward.size(), 2U * kSteps);
  for (int rank = 0; rank < 2; ++rank) {
    for (int step = 1; step <= kSteps; ++step) {
      SCOPED_TRACE("rank " + std::to_string(rank) + ", step " + std::to_string(step));
      ASSERT_TRUE(backward.contains({rank, step}));
      const Piece whole = backward.at({rank, step}).front();
      ASSERT_TRUE(collectives.contains({rank, step}));
      ASSERT_EQ(collectives.at({rank, step}).size(), 2U);  // both plans of the CNN have two buckets of 0.5 MiB
      for (const Piece& collective : collectives.at({rank, step})) {
        EXPECT_GE(collective.begin, whole.begin);
        EXPECT_LE(collective.end, whole.end);
      }
    }
  }
}

TEST(Trace, OneProcessAlone) {
  const SmallData data;
  const TempFolder folder;
  const Ended run = run_program({TRAIN_MLP, "--mode", "local", "--data", data.path(), "--steps", "3", "--batch-size",
                                 "4", "--trace", folder.path().string()});
  ASSERT_EQ(run.code, 0) << run.errors;
  const Json trace = Json::parse(std::ifstream(folder / "trace.json"));
  EXPECT_EQ(pieces(trace, "backward").size(), 3U);
  EXPECT_TRUE(pieces(trace, "collective").empty());
}

TEST(Trace, AFolderThatCannotBeMadeIsNamed) {
  const SmallData data;
  const Ended run =
      run_program({TRAIN_MLP, "--mode", "local", "--data", data.path(), "--steps", "1", "--trace", "/dev/null/x"});
  EXPECT_EQ(run.code, 1);
  EXPECT_NE(run.errors.find("/dev/null/x"), std::string::npos) << run.errors;
}

TEST(Trace, AFolderThatCannotBeWrittenIsNamedBeforeTraining) {
  const SmallData data;
  const Ended run =
      run_program({TRAIN_MLP, "--mode", "local", "--data", data.path(), "--steps", "1", "--trace", "/proc"});
  EXPECT_EQ(run.code, 1);
  EXPECT_NE(run.errors.find("cannot write to the folder '/proc'"), std::string::npos) << run.errors;
  EXPECT_EQ(run.output.find("epoch"), std::string::npos) << run.output;
}

}  // namespace
}  // namespace ddp::test
