#include "ddp/trace/recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/allocator.h"
#include "core/observer.h"

namespace ddp::trace {
namespace {

class RecorderTest : public ::testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override {
    set_enabled(false);
    clear();
  }
};

TEST_F(RecorderTest, CountsFromManyThreadsAddUp) {
  const auto before = snapshot();
  constexpr int kThreads = 8;
  constexpr int kEach = 10000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < kEach; ++i) {
        count(Counter::collectives);
        count(Counter::bytes_reduced, t + 1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const auto difference = snapshot() - before;
  EXPECT_EQ(difference[Counter::collectives], kThreads * kEach);
  EXPECT_EQ(difference[Counter::bytes_reduced], 36 * kEach);
  EXPECT_EQ(difference[Counter::gradient_bytes_copied], 0);
  EXPECT_EQ(total(Counter::collectives), before[Counter::collectives] + kThreads * kEach);
}

TEST_F(RecorderTest, KeepsSpansOnlyWhenEnabled) {
  record(SpanKind::forward, 1, 2, "off");
  {
    ScopedSpan span(SpanKind::user, "off");
  }
  EXPECT_TRUE(spans().empty());

  set_enabled(true);
  EXPECT_TRUE(enabled());
  const std::int64_t step = begin_step();
  EXPECT_EQ(current_step(), step);
  record(SpanKind::collective, 10, 25, "bucket 3", 7);
  {
    ScopedSpan span(SpanKind::backward, "whole", 2);
  }
  EXPECT_EQ(begin_step(), step + 1);
  record(SpanKind::optimizer, 30, 31);

  const auto kept = spans();
  ASSERT_EQ(kept.size(), 3U);
  EXPECT_EQ(kept[0].kind, SpanKind::collective);
  EXPECT_EQ(kept[0].begin_ns, 10);
  EXPECT_EQ(kept[0].end_ns, 25);
  EXPECT_EQ(kept[0].lane, 7);
  EXPECT_EQ(kept[0].step, step);
  EXPECT_STREQ(kept[0].label, "bucket 3");
  EXPECT_EQ(kept[1].kind, SpanKind::backward);
  EXPECT_STREQ(kept[1].label, "whole");
  EXPECT_EQ(kept[1].lane, 2);
  EXPECT_LE(kept[1].begin_ns, kept[1].end_ns);
  EXPECT_EQ(kept[2].step, step + 1);
  EXPECT_STREQ(kept[2].label, "");

  clear();
  EXPECT_TRUE(spans().empty());
}

TEST_F(RecorderTest, CutsLongLabelsBetweenCharacters) {
  set_enabled(true);
  record(SpanKind::user, 0, 1, std::string(39, 'a'));
  record(SpanKind::user, 0, 1, std::string(40, 'b'));
  record(SpanKind::user, 0, 1, std::string(38, 'c') + "\xC3\xA9");  // a two-byte character across the cut
  const auto kept = spans();
  ASSERT_EQ(kept.size(), 3U);
  EXPECT_EQ(kept[0].label, std::string(39, 'a'));
  EXPECT_EQ(kept[1].label, std::string(39, 'b'));
  EXPECT_EQ(kept[2].label, std::string(38, 'c'));
}

TEST_F(RecorderTest, KeepsEverySpanOfManyThreadsBelowCapacity) {
  set_enabled(true);
  constexpr int kThreads = 8;
  constexpr int kEach = 2000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < kEach; ++i) record(SpanKind::user, i, i + t, {}, t);
    });
  }
  for (auto& thread : threads) thread.join();
  const auto kept = spans();
  ASSERT_EQ(kept.size(), static_cast<std::size_t>(kThreads * kEach));
  // Every thread's spans are all there, and in the order of that thread.
  std::vector<std::int64_t> next(kThreads, 0);
  for (const Span& span : kept) {
    auto& expected = next[static_cast<std::size_t>(span.lane)];
    EXPECT_EQ(span.begin_ns, expected);
    EXPECT_EQ(span.end_ns, expected + span.lane);
    ++expected;
  }
  for (const auto reached : next) EXPECT_EQ(reached, kEach);
}

TEST_F(RecorderTest, KeepsThe65536Newest) {
  set_enabled(true);
  for (int i = 0; i < 65536 + 100; ++i) record(SpanKind::user, i, i + 1);
  const auto kept = spans();
  ASSERT_EQ(kept.size(), 65536U);
  EXPECT_EQ(kept.front().begin_ns, 100);
  EXPECT_EQ(kept.back().begin_ns, 65635);
}

TEST_F(RecorderTest, CountsWhatCoreReports) {
  const auto before = snapshot();
  const core::Observer* observer = core::observer();
  ASSERT_NE(observer, nullptr);
  observer->launch("gemm", Device::cpu());
  observer->launch("gemm", Device::cpu());
  observer->copy(Device::cpu(), Device::cpu(), 4096);
  observer->blocking_call("synchronize", Device::cpu(), 1500, std::source_location::current());
  auto difference = snapshot() - before;
  EXPECT_EQ(difference[Counter::kernel_launches], 2);
  EXPECT_EQ(difference[Counter::bytes_copied], 4096);
  EXPECT_EQ(difference[Counter::blocking_calls], 1);
  EXPECT_EQ(difference[Counter::blocking_ns], 1500);
  EXPECT_TRUE(spans().empty());

  set_enabled(true);
  {
    core::BlockingScope scope("item", Device::cpu(), std::source_location::current());
  }
  difference = snapshot() - before;
  EXPECT_EQ(difference[Counter::blocking_calls], 2);
  const auto kept = spans();
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_EQ(kept[0].kind, SpanKind::wait);
  EXPECT_EQ(std::string(kept[0].label).rfind("item recorder_test.cpp:", 0), 0U) << kept[0].label;
}

TEST_F(RecorderTest, CountsBlocksTakenFromTheAllocators) {
  const auto before = snapshot();
  const StreamView stream(Device::cpu(1));
  void* block = core::allocate(100, stream);
  core::deallocate(block, 100, stream);
  block = core::allocate(100, stream);  // out of the cache, and counted all the same
  core::deallocate(block, 100, stream);
  EXPECT_EQ((snapshot() - before)[Counter::allocations], 2);
}

TEST(RecorderNames, AreDistinct) {
  std::set<std::string_view> names;
  for (int i = 0; i < static_cast<int>(Counter::count_); ++i) names.insert(name(static_cast<Counter>(i)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(Counter::count_));
  names.clear();
  for (int i = 0; i < static_cast<int>(SpanKind::count_); ++i) names.insert(name(static_cast<SpanKind>(i)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(SpanKind::count_));
  EXPECT_EQ(names.count("unknown"), 0U);
}

}  // namespace
}  // namespace ddp::trace
