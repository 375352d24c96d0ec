#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "ddp/core/error.h"
#include "ddp/trace/recorder.h"

namespace ddp::trace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class JsonLinesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ddp_trace_test." + std::to_string(::getpid()));
    fs::create_directory(folder_);
    clear();
    set_enabled(true);
  }
  void TearDown() override {
    set_enabled(false);
    clear();
    fs::remove_all(folder_);
  }
  std::vector<Json> read(const fs::path& path) const {
    std::vector<Json> result;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) result.push_back(Json::parse(line));  // throws if not JSON
    return result;
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

TEST_F(JsonLinesTest, WritesSpansThenCounters) {
  const auto path = folder_ / "trace.jsonl";
  const std::int64_t step = begin_step();
  record(SpanKind::collective, 100, 250, "bucket \"0\"\n\t\\", 1);
  record(SpanKind::user, 300, 301, "\xFF not UTF-8");
  count(Counter::gradient_bytes_copied, 12);
  write_json_lines(path, 3);

  const auto lines = read(path);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], Json({{"event", "span"},
                            {"rank", 3},
                            {"kind", "collective"},
                            {"label", "bucket \"0\"\n\t\\"},
                            {"track", track_name(host_track())},
                            {"lane", 1},
                            {"step", step},
                            {"begin_ns", 100},
                            {"end_ns", 250}}));
  EXPECT_EQ(lines[1]["label"], "\xEF\xBF\xBD not UTF-8");
  EXPECT_EQ(lines[2]["event"], "counters");
  EXPECT_EQ(lines[2]["rank"], 3);
  EXPECT_EQ(lines[2]["steps"], step);
  for (int i = 0; i < static_cast<int>(Counter::count_); ++i) {
    const auto counter = static_cast<Counter>(i);
    EXPECT_EQ(lines[2][std::string(name(counter))], total(counter));
  }
  EXPECT_EQ(files(), 1U);  // no temporary file is left
}

TEST_F(JsonLinesTest, WritesFinishedStepsWithTheirCounters) {
  const auto path = folder_ / "trace.jsonl";
  const std::int64_t step = begin_step();
  count(Counter::collectives, 7);
  record(SpanKind::exposed, 100, 350);
  begin_step();
  write_json_lines(path, 1);
  const auto lines = read(path);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[1]["event"], "step");
  EXPECT_EQ(lines[1]["step"], step);
  EXPECT_EQ(lines[1]["collectives"], 7);
  EXPECT_EQ(lines[1]["exposed_ns"], 250);
  EXPECT_FALSE(lines[1].contains("forward_ns"));
}

TEST_F(JsonLinesTest, ReplacesAnOlderFileAsAWhole) {
  const auto path = folder_ / "trace.jsonl";
  for (int i = 0; i < 50; ++i) record(SpanKind::user, i, i + 1);
  write_json_lines(path, 0);
  EXPECT_EQ(read(path).size(), 51U);
  clear();
  write_json_lines(path, 0);
  EXPECT_EQ(read(path).size(), 1U);
}

TEST_F(JsonLinesTest, IsValidWhileThreadsRecord) {
  const auto path = folder_ / "trace.jsonl";
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 500; ++i) ScopedSpan span(SpanKind::forward, "layer");
    });
  }
  for (int i = 0; i < 5; ++i) {
    write_json_lines(path, 0);
    EXPECT_EQ(read(path).back()["event"], "counters");
  }
  for (auto& thread : threads) thread.join();
  write_json_lines(path, 0);
  EXPECT_EQ(read(path).size(), 2001U);
}

TEST_F(JsonLinesTest, FailsNamingThePathAndLeavesNothing) {
  const auto path = folder_ / "no such folder" / "trace.jsonl";
  try {
    write_json_lines(path, 0);
    FAIL() << "no exception";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("No such file or directory"), std::string::npos) << error.what();
  }
  const auto folder_path = folder_ / "taken";
  fs::create_directory(folder_path);
  EXPECT_THROW(write_json_lines(folder_path, 0), IoError);
  EXPECT_EQ(files(), 1U);  // the folder; the temporary file is gone
}

}  // namespace
}  // namespace ddp::trace
