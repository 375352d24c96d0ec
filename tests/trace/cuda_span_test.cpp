// Spans measured on a GPU.
#include <gtest/gtest.h>

#include <algorithm>

#include "ddp/ddp.h"
#include "ddp/trace/device_span.h"

namespace ddp::trace {
namespace {

class CudaSpanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    clear();
    set_sampling({.first = 0, .every = 1});
    set_enabled(true);
  }
  void TearDown() override {
    set_enabled(false);
    set_sampling({});
    clear();
  }
  const Device device_ = Device::cuda(0);
  /// Some hundred microseconds of work, whatever the machine.
  void work() {
    for (int i = 0; i < 20; ++i) buffer_.fill_(i);
  }
  Tensor buffer_ = empty({1 << 26}, {DType::float32, Device::cuda(0)});
};

const Span* find(const std::vector<Span>& all, SpanKind kind) {
  const auto found = std::ranges::find_if(all, [kind](const Span& span) { return span.kind == kind; });
  return found == all.end() ? nullptr : &*found;
}

TEST_F(CudaSpanTest, LiesBetweenTheHostsTimesAround) {
  begin_step();
  current_stream(device_).synchronize();
  DeviceSpan(SpanKind::user, current_stream(device_), "warm").end(current_stream(device_));
  ASSERT_TRUE(flush());
  clear();
  const std::int64_t before = now_ns();
  DeviceSpan span(SpanKind::user, current_stream(device_), "fill", 5);
  work();
  span.end(current_stream(device_));
  current_stream(device_).synchronize();
  const std::int64_t after = now_ns();
  ASSERT_TRUE(flush());
  const auto all = spans();
  const Span* kept = find(all, SpanKind::user);
  ASSERT_NE(kept, nullptr);
  EXPECT_STREQ(kept->label, "fill");
  EXPECT_EQ(kept->lane, 5);
  EXPECT_EQ(kept->step, current_step());
  // Half a millisecond for an anchor that a busy machine reached late.
  constexpr std::int64_t kSlack = 500'000;
  EXPECT_GE(kept->begin_ns, before - kSlack);
  EXPECT_LE(kept->end_ns, after + kSlack);
  // 20 times 256 MiB at less than 10 TB/s.
  EXPECT_GT(kept->end_ns - kept->begin_ns, 20LL * (1 << 28) / 10'000);
  EXPECT_EQ(track_name(kept->track).substr(0, 6), "cuda:0");
}

TEST_F(CudaSpanTest, DoesNotBlockAndAppearsLater) {
  begin_step();
  DeviceSpan(SpanKind::user, current_stream(device_)).end(current_stream(device_));  // aligns the clock
  ASSERT_TRUE(flush());
  clear();
  const auto before = snapshot();
  for (int i = 0; i < 50; ++i) {
    begin_step();
    PhaseSpan phase(SpanKind::forward, device_);
    work();
  }
  EXPECT_EQ((snapshot() - before)[Counter::blocking_calls], 0);
  ASSERT_TRUE(flush());
  begin_step();
  const auto records = steps();
  ASSERT_EQ(records.size(), 50U);
  // Every step's time on the device is there, though the host was far ahead.
  for (const StepRecord& record : records) EXPECT_GT(record[SpanKind::forward], 20LL * (1 << 28) / 10'000);
}

TEST_F(CudaSpanTest, StreamsHaveTracksOfTheirOwn) {
  const Stream side(device_);
  name_track(side, "cuda:0 lane 1");
  DeviceSpan(SpanKind::collective, side, "sum").end(side);
  DeviceSpan(SpanKind::forward, current_stream(device_)).end(current_stream(device_));
  ASSERT_TRUE(flush());
  const auto all = spans();
  const Span* collective = find(all, SpanKind::collective);
  const Span* forward = find(all, SpanKind::forward);
  ASSERT_NE(collective, nullptr);
  ASSERT_NE(forward, nullptr);
  EXPECT_NE(collective->track, forward->track);
  EXPECT_EQ(track_name(collective->track), "cuda:0 lane 1");
}

TEST_F(CudaSpanTest, SeesTheDeviceWaitForTheHost) {
  begin_step();
  DeviceSpan(SpanKind::forward, current_stream(device_)).end(current_stream(device_));
  current_stream(device_).synchronize();
  const std::int64_t from = now_ns();
  while (now_ns() - from < 3'000'000) {
  }
  DeviceSpan(SpanKind::backward, current_stream(device_)).end(current_stream(device_));
  ASSERT_TRUE(flush());
  const auto all = spans();
  const Span* gap = find(all, SpanKind::host_gap);
  ASSERT_NE(gap, nullptr);
  EXPECT_GE(gap->end_ns - gap->begin_ns, 2'900'000);
}

TEST_F(CudaSpanTest, AStepThatIsNotSampledPutsNothingIntoTheStream) {
  set_sampling({.first = 0, .every = 0});
  begin_step();
  DeviceSpan(SpanKind::forward, current_stream(device_)).end(current_stream(device_));
  {
    DeviceSpan dropped(SpanKind::forward, current_stream(device_));
  }
  EXPECT_TRUE(flush(std::chrono::milliseconds(0)));
  EXPECT_TRUE(spans().empty());
  EXPECT_EQ(dropped_spans(), 0);
}

}  // namespace
}  // namespace ddp::trace
