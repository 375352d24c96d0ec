#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ddp/core/error.h"
#include "ddp/trace/recorder.h"

namespace ddp::trace {
namespace {

using Json = nlohmann::json;

class ChromeTraceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / ("chrome_trace_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    clear();
    set_sampling({});
    set_enabled(true);
  }
  void TearDown() override {
    set_enabled(false);
    clear();
    std::filesystem::remove_all(folder_);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static std::vector<Json> events(const std::string& file) {
    return Json::parse(std::ifstream(file)).at("traceEvents").get<std::vector<Json>>();
  }
  static std::vector<Json> with(const std::vector<Json>& all, const std::string& key, const std::string& value) {
    std::vector<Json> found;
    for (const Json& event : all) {
      if (event.contains(key) && event[key] == value) found.push_back(event);
    }
    return found;
  }
  std::filesystem::path folder_;
};

TEST_F(ChromeTraceTest, SpansMarksArrowsAndSteps) {
  const std::int64_t step = begin_step();
  record(SpanKind::backward, 1000, 9000, "whole");
  record(SpanKind::bucket_ready, 2000, 2000, "bucket 0: a", 0);
  record(SpanKind::collective, 2500, 4500, "bucket 0: a", 1);
  record(SpanKind::collective, 5000, 6000, "bucket 1: b", 1);  // was never marked ready
  begin_step();
  write_chrome_trace(path("t.json"), 3);
  const auto all = events(path("t.json"));

  const auto backward = with(all, "cat", "backward");
  ASSERT_EQ(backward.size(), 1U);
  EXPECT_EQ(backward[0]["name"], "whole");
  EXPECT_EQ(backward[0]["ph"], "X");
  EXPECT_EQ(backward[0]["pid"], 3);
  EXPECT_EQ(backward[0]["ts"], 1.0);
  EXPECT_EQ(backward[0]["dur"], 8.0);
  EXPECT_EQ(backward[0]["args"]["step"], step);

  const auto ready = with(all, "cat", "bucket_ready");
  ASSERT_EQ(ready.size(), 1U);
  EXPECT_EQ(ready[0]["ph"], "i");

  ASSERT_EQ(with(all, "ph", "s").size(), 1U);
  ASSERT_EQ(with(all, "ph", "f").size(), 1U);
  EXPECT_EQ(with(all, "ph", "s")[0]["ts"], 2.0);
  EXPECT_EQ(with(all, "ph", "f")[0]["ts"], 2.5);
  EXPECT_EQ(with(all, "ph", "s")[0]["id"], with(all, "ph", "f")[0]["id"]);

  const auto steps = with(all, "cat", "step");
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0]["name"], "step " + std::to_string(step));
  ASSERT_EQ(with(all, "name", "process_name").size(), 1U);
  EXPECT_EQ(with(all, "name", "process_name")[0]["args"]["name"], "rank 3");
  EXPECT_EQ(with(all, "name", "thread_name").size(), 3U);  // this thread, the lane and the row of steps
}

// A viewer drops what overlaps another span of its row without lying inside it.
TEST_F(ChromeTraceTest, CollectivesOfTheHostHaveARowForEachLane) {
  begin_step();
  record(SpanKind::backward, 1000, 9000);
  record(SpanKind::bucket_ready, 2000, 2000, "bucket 0: a", 0);
  record(SpanKind::collective, 2500, 6000, "bucket 0: a", 1);
  record(SpanKind::collective, 2500, 7000, "bucket 1: b", 2);
  record(SpanKind::collective, 6000, 8500, "bucket 2: c", 1);
  record(SpanKind::exposed, 5000, 8800);
  write_chrome_trace(path("rows.json"), 2);
  const auto all = events(path("rows.json"));
  const auto row = [&](const std::string& name) { return with(all, "name", name).at(0).at("tid").get<int>(); };
  EXPECT_EQ(row("backward"), row("exposed"));
  EXPECT_NE(row("bucket 1: b"), row("backward"));
  EXPECT_EQ(with(all, "cat", "collective").size(), 3U);
  EXPECT_EQ(with(all, "cat", "collective")[0]["tid"], row("bucket 2: c"));
  EXPECT_NE(row("bucket 1: b"), row("bucket 2: c"));
  EXPECT_EQ(with(all, "ph", "s")[0]["tid"], row("backward"));
  EXPECT_EQ(with(all, "ph", "f")[0]["tid"], row("bucket 2: c"));
  std::vector<std::string> names;
  for (const Json& event : with(all, "name", "thread_name")) names.push_back(event["args"]["name"]);
  EXPECT_EQ(std::count(names.begin(), names.end(), "communication lane 1"), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "communication lane 2"), 1);
}

TEST_F(ChromeTraceTest, AnEmptyRecordIsAValidFile) {
  write_chrome_trace(path("empty.json"), 0);
  EXPECT_TRUE(with(events(path("empty.json")), "ph", "X").empty());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);  // nothing temporary left
}

TEST_F(ChromeTraceTest, RanksAreMerged) {
  record(SpanKind::user, 1, 2, "x");
  write_chrome_trace(path("0.json"), 0);
  write_chrome_trace(path("1.json"), 1);
  merge_chrome_traces({path("0.json"), path("1.json")}, path("both.json"));
  const auto both = with(events(path("both.json")), "name", "x");
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0]["pid"], 0);
  EXPECT_EQ(both[1]["pid"], 1);
}

TEST_F(ChromeTraceTest, MergingNamesTheFileAtFault) {
  write_chrome_trace(path("0.json"), 0);
  std::ofstream(path("bad.json")) << "{\"traceEvents\": 1}";
  const auto message = [&](const std::string& other) -> std::string {
    try {
      merge_chrome_traces({path("0.json"), other}, path("both.json"));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message(path("bad.json")).find("bad.json"), std::string::npos);
  EXPECT_NE(message(path("none.json")).find("none.json"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path("both.json")));
}

TEST_F(ChromeTraceTest, AFolderThatIsNotThereIsNamed) {
  try {
    write_chrome_trace(path("no/such/t.json"), 0);
    FAIL();
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("no/such/t.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace ddp::trace
