#include <gtest/gtest.h>

#include <thread>

#include "ddp/core/error.h"
#include "ddp/trace/device_span.h"
#include "ddp/trace/recorder.h"
#include "trace/step_ring.h"

namespace ddp::trace {
namespace {

class StepsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    clear();
    set_sampling({.first = 10, .every = 50});
    set_enabled(true);
  }
  void TearDown() override {
    set_enabled(false);
    set_sampling({});
    clear();
  }
};

TEST_F(StepsTest, EachStepHasItsOwnCountersAndTimes) {
  const std::int64_t first = begin_step();
  count(Counter::collectives, 3);
  record(SpanKind::forward, 100, 150);
  record(SpanKind::forward, 200, 220);
  record(SpanKind::backward, 300, 301);
  EXPECT_TRUE(steps().empty());  // not finished yet
  const std::int64_t second = begin_step();
  count(Counter::collectives, 4);
  count(Counter::bytes_reduced, 5);
  begin_step();
  const auto records = steps();
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].step, first);
  EXPECT_EQ(records[0].counters[Counter::collectives], 3);
  EXPECT_EQ(records[0].counters[Counter::bytes_reduced], 0);
  EXPECT_EQ(records[0][SpanKind::forward], 70);
  EXPECT_EQ(records[0][SpanKind::backward], 1);
  EXPECT_EQ(records[0][SpanKind::exposed], 0);
  EXPECT_LE(records[0].begin_ns, records[0].end_ns);
  EXPECT_EQ(records[0].end_ns, records[1].begin_ns);
  EXPECT_EQ(records[1].step, second);
  EXPECT_EQ(records[1].counters[Counter::collectives], 4);
  EXPECT_EQ(records[1].counters[Counter::bytes_reduced], 5);
  EXPECT_EQ(records[1][SpanKind::forward], 0);
}

TEST_F(StepsTest, KeepsTheFirstStepsAndThenEverySoMany) {
  set_sampling({.first = 2, .every = 3});
  std::vector<bool> kept;
  for (int i = 0; i < 9; ++i) {
    begin_step();
    kept.push_back(sampled());
    record(SpanKind::user, i, i + 1);
  }
  EXPECT_EQ(kept, (std::vector<bool>{true, true, false, false, true, false, false, true, false}));
  EXPECT_EQ(spans().size(), 4U);
  begin_step();
  const auto records = steps();
  ASSERT_EQ(records.size(), 9U);  // counters of every step
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(records[i].sampled, kept[i]) << i;
}

TEST_F(StepsTest, SamplingCountsFromTheCall) {
  for (int i = 0; i < 30; ++i) begin_step();
  EXPECT_FALSE(sampled());
  set_sampling({.first = 1, .every = 0});
  begin_step();
  EXPECT_TRUE(sampled());
  for (int i = 0; i < 100; ++i) {
    begin_step();
    ASSERT_FALSE(sampled());
  }
}

TEST_F(StepsTest, RefusesNegativeSampling) {
  EXPECT_THROW(set_sampling({.first = -1, .every = 0}), InvalidArgument);
  EXPECT_THROW(set_sampling({.first = 1, .every = -2}), InvalidArgument);
}

TEST_F(StepsTest, NothingIsKeptWhileOff) {
  set_enabled(false);
  begin_step();
  EXPECT_FALSE(sampled());
  begin_step();
  EXPECT_TRUE(steps().empty());
}

TEST_F(StepsTest, ThreadsHaveTracksOfTheirOwn) {
  const std::uint16_t mine = host_track();
  EXPECT_EQ(host_track(), mine);
  std::uint16_t other = 0;
  std::thread([&] { other = host_track(); }).join();
  EXPECT_NE(other, mine);
  EXPECT_NE(track_name(other), track_name(mine));
  EXPECT_EQ(track_name(mine).substr(0, 11), "host thread");
  record(SpanKind::user, 1, 2);
  ASSERT_EQ(spans().size(), 1U);
  EXPECT_EQ(spans()[0].track, mine);
}

TEST_F(StepsTest, PhasesOnACpuDeviceAreHostSpans) {
  begin_step();
  {
    PhaseSpan phase(SpanKind::forward, Device::cpu(), "net");
    DeviceSpan nothing(SpanKind::collective, StreamView(Device::cpu()), "sum");
    nothing.end(StreamView(Device::cpu()));
    nothing.end(StreamView(Device::cpu()));
  }
  const auto kept = spans();
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_EQ(kept[0].kind, SpanKind::forward);
  EXPECT_STREQ(kept[0].label, "net");
  EXPECT_TRUE(flush(std::chrono::milliseconds(0)));
}

TEST(StepRing, OldStepsGiveWayAndTakeNoMoreTime) {
  StepRing ring;
  const CounterSnapshot none;
  constexpr std::int64_t kMore = 5;
  for (std::int64_t step = 1; step <= StepRing::kCapacity + kMore; ++step) ring.begin(step, step, true, none);
  ring.add(1, SpanKind::user, 7, false);  // written over long ago: lands nowhere
  const auto records = ring.read();
  ASSERT_EQ(records.size(), static_cast<std::size_t>(StepRing::kCapacity - 1));
  EXPECT_EQ(records.front().step, kMore + 1);
  EXPECT_EQ(records.back().step, StepRing::kCapacity + kMore - 1);
  for (const StepRecord& record : records) EXPECT_EQ(record[SpanKind::user], 0);
}

TEST(StepRing, TheDevicesClockGoesFirst) {
  StepRing ring;
  ring.begin(1, 10, true, {});
  ring.add(1, SpanKind::forward, 100, false);
  ring.add(1, SpanKind::forward, 70, true);
  ring.begin(2, 20, true, {});
  ring.add(1, SpanKind::forward, 5, true);  // the device was later than the host
  ASSERT_EQ(ring.read().size(), 1U);
  EXPECT_EQ(ring.read()[0][SpanKind::forward], 75);
}

}  // namespace
}  // namespace ddp::trace
