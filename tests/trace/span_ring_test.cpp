#include "trace/span_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace ddp::trace {
namespace {

Span make_span(std::int64_t number) {
  Span span;
  span.lane = static_cast<std::int32_t>(number % 1000);
  span.step = number;
  span.begin_ns = 3 * number;
  span.end_ns = 5 * number;
  const std::string text = std::to_string(number);
  text.copy(span.label, sizeof span.label - 1);
  return span;
}

// All fields come from one number, so a span put together from two writers shows.
bool is_whole(const Span& span) {
  const Span expected = make_span(span.step);
  return span.lane == expected.lane && span.begin_ns == expected.begin_ns && span.end_ns == expected.end_ns &&
         std::string_view(span.label) == expected.label;
}

TEST(SpanRing, KeepsTheNewestOldestFirst) {
  auto ring = std::make_unique<SpanRing<16>>();
  EXPECT_TRUE(ring->read().empty());
  for (int i = 0; i < 10; ++i) ring->push(make_span(i));
  auto spans = ring->read();
  ASSERT_EQ(spans.size(), 10U);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(spans[static_cast<std::size_t>(i)].step, i);

  for (int i = 10; i < 45; ++i) ring->push(make_span(i));
  spans = ring->read();
  ASSERT_EQ(spans.size(), 16U);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(spans[static_cast<std::size_t>(i)].step, 29 + i);
}

TEST(SpanRing, ClearForgetsOnlyWhatWasThere) {
  auto ring = std::make_unique<SpanRing<16>>();
  for (int i = 0; i < 20; ++i) ring->push(make_span(i));
  ring->clear();
  EXPECT_TRUE(ring->read().empty());
  ring->push(make_span(20));
  const auto spans = ring->read();
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].step, 20);
}

TEST(SpanRing, WritersThatLapEachOtherNeverMixSpans) {
  auto ring = std::make_unique<SpanRing<8>>();  // small, so that threads meet in a slot all the time
  constexpr int kThreads = 4;
  constexpr int kEach = 5000;
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) ring->push(make_span(t * kEach + i));
      running.fetch_sub(1);
    });
  }
  int torn = 0;
  while (running.load() > 0) {
    for (const Span& span : ring->read()) torn += is_whole(span) ? 0 : 1;
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(torn, 0);
  const auto spans = ring->read();
  EXPECT_LE(spans.size(), 8U);
  for (const Span& span : spans) EXPECT_TRUE(is_whole(span));
}

}  // namespace
}  // namespace ddp::trace
