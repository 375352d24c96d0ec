#include "ddp/parallel/reducer.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>

#include "ddp/trace/recorder.h"
#include "parallel/support.h"

namespace {

using namespace ddp;
using namespace ddp::test;
using parallel::BucketInfo;
using parallel::GradientSlot;
using parallel::Reducer;

void fill(const Reducer& reducer, std::size_t slot, double value) {
  Tensor gradient = reducer.gradient(slot);
  gradient.fill_(value);
}

void expect_all(const Tensor& tensor, double value) {
  for (const double element : tensor.to_vector<double>()) ASSERT_EQ(element, value);
}

std::vector<std::vector<std::size_t>> slots_of(const Reducer& reducer) {
  std::vector<std::vector<std::size_t>> out;
  for (const BucketInfo& bucket : reducer.plan()) out.push_back(bucket.slots);
  return out;
}

class ReducerRanks : public testing::TestWithParam<int> {};

TEST_P(ReducerRanks, MeanIsExactAndNothingIsCopied) {
  const int size = GetParam();
  on_ranks(size, [&](int rank, const auto& group) {
    Reducer reducer(group, make_slots({5, 300, 1, 40}), {.bucket_cap_bytes = {128}});
    const auto copied = trace::total(trace::Counter::gradient_bytes_copied);
    for (int step = 1; step <= 5; ++step) {
      reducer.prepare();
      for (std::size_t slot = 4; slot-- > 0;) {
        // Sums over ranks that the rank count divides: the mean is a whole number.
        fill(reducer, slot, static_cast<double>(size) * (rank + 1) * static_cast<double>(slot + 7) * step);
        reducer.mark_ready(slot);
      }
      reducer.finish();
      const double ranks = size * (size + 1) / 2.0;
      for (std::size_t slot = 0; slot < 4; ++slot) {
        const double own = static_cast<double>(size) * (rank + 1) * static_cast<double>(slot + 7) * step;
        expect_all(reducer.gradient(slot), size == 1 ? own : ranks * static_cast<double>(slot + 7) * step);
      }
    }
    EXPECT_EQ(reducer.counters().bytes_copied, 0U);
    EXPECT_EQ(trace::total(trace::Counter::gradient_bytes_copied), copied);
    EXPECT_EQ(reducer.counters().passes, 5U);
    EXPECT_EQ(reducer.counters().collectives, size == 1 ? 0U : 15U);
  });
}

TEST_P(ReducerRanks, LaunchOrderIsThePlansWhateverTheArrival) {
  const int size = GetParam();
  const std::vector<std::int64_t> counts = {16, 16, 16, 16, 16, 16, 16, 16, 16};
  std::vector<std::vector<std::string>> labels(static_cast<std::size_t>(size));
  on_ranks(size, [&](int rank, const auto& inner) {
    const auto group = std::make_shared<RecordingGroup>(inner);
    Reducer reducer(group, make_slots(counts), {.bucket_cap_bytes = {64}, .lanes = 2});
    group->clear_calls();
    std::mt19937 random(static_cast<unsigned>(rank) * 31U + 5U);
    for (int step = 0; step < 4; ++step) {
      std::vector<std::size_t> order(counts.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::shuffle(order.begin(), order.end(), random);
      reducer.prepare();
      for (const std::size_t slot : order) {
        fill(reducer, slot, size * (static_cast<double>(slot) + 10 * rank));
        reducer.mark_ready(slot);
      }
      reducer.finish();
      for (std::size_t slot = 0; slot < counts.size(); ++slot) {
        expect_all(reducer.gradient(slot), size * static_cast<double>(slot) + 5.0 * size * (size - 1));
      }
    }
    labels[static_cast<std::size_t>(rank)] = reduced_labels(*group);
  });
  if (size == 1) return;
  std::vector<std::string> expected;
  for (int step = 0; step < 4; ++step) {
    for (int bucket = 0; bucket < 9; ++bucket) expected.push_back(concat("bucket ", bucket, ": p", 8 - bucket));
  }
  for (const auto& one : labels) EXPECT_EQ(one, expected);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ReducerRanks, testing::Values(1, 2, 3, 4));

TEST(Reducer, CollectivesStartBeforeTheLastGradient) {
  on_ranks(2, [](int, const auto& inner) {
    const auto group = std::make_shared<RecordingGroup>(inner);
    Reducer reducer(group, make_slots({16, 16, 16}), {.bucket_cap_bytes = {64}});
    group->clear_calls();
    reducer.prepare();
    reducer.mark_ready(2);
    EXPECT_EQ(reduced_labels(*group), (std::vector<std::string>{"bucket 0: p2"}));
    reducer.mark_ready(1);
    EXPECT_EQ(reduced_labels(*group).size(), 2U);
    reducer.mark_ready(0);
    // The last one takes the status of the whole pass along.
    EXPECT_EQ(reduced_labels(*group).size(), 2U);
    reducer.finish();
    EXPECT_EQ(reduced_labels(*group).size(), 3U);
    EXPECT_EQ(reducer.counters().launched_before_last, 2U);
  });
}

TEST(Reducer, LanesAreUsedInTurnAndLaneZeroIsLeft) {
  on_ranks(2, [](int, const auto& inner) {
    const auto group = std::make_shared<RecordingGroup>(inner);
    Reducer reducer(group, make_slots({16, 16, 16, 16}), {.bucket_cap_bytes = {64}, .lanes = 3});
    group->clear_calls();
    reducer.prepare();
    for (std::size_t slot = 4; slot-- > 0;) reducer.mark_ready(slot);
    reducer.finish();
    std::vector<int> lanes;
    for (const RecordedCall& call : group->calls()) lanes.push_back(call.lane);
    EXPECT_EQ(lanes, (std::vector<int>{1, 2, 3, 1}));
  });
}

TEST(Reducer, CallersCollectivesMayComeBetweenBucketsInAnyOrder) {
  on_ranks(2, [](int rank, const auto& group) {
    Reducer reducer(group, make_slots({16, 16, 16}), {.bucket_cap_bytes = {64}});
    for (int step = 0; step < 10; ++step) {
      reducer.prepare();
      const Tensor mine = full({1}, rank + 1.0, {DType::float32, test_device()});
      const auto own_collective = [&] { group->all_reduce(mine).wait(); };
      if (rank == 0) own_collective();
      for (std::size_t slot = 3; slot-- > 0;) {
        fill(reducer, slot, rank + 1.0);
        reducer.mark_ready(slot);
      }
      if (rank == 1) own_collective();
      reducer.finish();
      EXPECT_EQ(mine.item<float>(), 3.0F);
      expect_all(reducer.gradient(1), 1.5);
    }
  });
}

TEST(Reducer, MemoryOfTheCallerIsCopiedInAndOutAndCounted) {
  on_ranks(2, [](int rank, const auto& group) {
    const Tensor a = put(full({3}, rank + 1.0));
    std::vector<float> numbers(6);
    for (std::size_t i = 0; i < 6; ++i) numbers[i] = static_cast<float>((rank + 1) * (10 * (i % 2) + i / 2));
    const Tensor b = put(tensor(numbers, {6}));
    std::vector<GradientSlot> slots = make_slots({3, 4});
    slots[0].memory = a.data();
    // Columns first: [2, 3] with strides (1, 2).
    slots.push_back({"t", {2, 3}, DType::float32, test_device(), {1, 2}, b.data()});
    Reducer reducer(group, slots);
    EXPECT_EQ(reducer.gradient(2).strides(), (Dims{1, 2}));
    reducer.prepare();
    reducer.mark_ready(2);
    fill(reducer, 1, rank * 4.0);
    reducer.mark_ready(1);
    reducer.mark_ready(0);
    reducer.finish();
    expect_all(a, 1.5);
    expect_all(reducer.gradient(1), 2);
    EXPECT_EQ(b.to_vector<double>(), (std::vector<double>{0, 15, 1.5, 16.5, 3, 18}));
    EXPECT_EQ(reducer.counters().bytes_copied, 2U * (12 + 24));
  });
}

TEST(Reducer, MemoryOfTheCallerIsUntouchedAfterAFault) {
  on_ranks(2, [](int rank, const auto& group) {
    const Tensor a = put(full({2}, rank + 5.0));
    std::vector<GradientSlot> slots = make_slots({2, 2});
    slots[0].memory = a.data();
    Reducer reducer(group, slots);
    reducer.prepare();
    reducer.mark_ready(0);
    text_of<ReductionError>([&] { end_pass(reducer); });
    expect_all(a, rank + 5.0);
  });
}

TEST(Reducer, GradientsElsewhereAreCopiedInAndOut) {
  on_ranks(3, [](int rank, const auto& group) {
    Reducer reducer(group, make_slots({4, 2}));
    const Tensor own = full({4}, 3.0 * rank, {DType::float32, test_device()});
    reducer.prepare();
    fill(reducer, 1, 1);
    reducer.mark_ready(1);
    reducer.mark_ready(0, own);
    reducer.finish();
    expect_all(own, 3);
    EXPECT_EQ(reducer.counters().bytes_copied, 32U);
  });
}

TEST(Reducer, EmptyScalarOversizeAndMixedDtypes) {
  for (const int size : {2, 3}) {
    on_ranks(size, [&](int rank, const auto& inner) {
      const auto group = std::make_shared<RecordingGroup>(inner);
      const std::vector<GradientSlot> slots = put({{"p0", {0}},
                                                   {"p1", {}},
                                                   {"p2", {4}, DType::bfloat16},
                                                   {"half", {3}, DType::float16},
                                                   {"p3", {2}, DType::float64},
                                                   {"p4", {256}}});
      Reducer reducer(group, slots, {.bucket_cap_bytes = {64}});
      EXPECT_EQ(slots_of(reducer), (std::vector<std::vector<std::size_t>>{{5}, {4}, {3}, {2}, {1}}));
      for (int step = 0; step < 2; ++step) {
        reducer.prepare();
        for (std::size_t slot = slots.size(); slot-- > 0;) {
          fill(reducer, slot, slot == 4 ? 1 + (rank + 1) * 1e-12 : rank + 1.0);
          reducer.mark_ready(slot);
        }
        reducer.finish();
        const double mean = (size + 1) / 2.0;
        for (const std::size_t slot : {1, 2, 3, 5}) expect_all(reducer.gradient(slot), mean);
        EXPECT_EQ(reducer.gradient(0).numel(), 0);
        for (const double element : reducer.gradient(4).to_vector<double>()) {
          EXPECT_NEAR(element, 1 + mean * 1e-12, 1e-15);
        }
      }
      for (const RecordedCall& call : group->calls()) {
        for (const std::int64_t elements : call.elements) EXPECT_GT(elements, 0);
      }
    });
  }
}

TEST(Reducer, CapsListAndBytesReported) {
  on_ranks(2, [](int, const auto& group) {
    Reducer reducer(group, make_slots({20, 20, 20, 20, 20}), {.bucket_cap_bytes = {160, 80}});
    EXPECT_EQ(slots_of(reducer), (std::vector<std::vector<std::size_t>>{{4, 3}, {2}, {1}, {0}}));
    const std::vector<BucketInfo> plan = reducer.plan();
    EXPECT_EQ(plan[0].payload_bytes, 160);
    EXPECT_EQ(plan[0].bytes, 256);                // two slots of 80 bytes, each to a multiple of 64
    EXPECT_EQ(plan[3].bytes, 128 + 70 * 4 + 40);  // and the status word
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(reducer.gradient_data(3)) % 64, 0U);
  });
}

TEST(Reducer, LocalPassSendsNothing) {
  on_ranks(2, [](int rank, const auto& inner) {
    const auto group = std::make_shared<RecordingGroup>(inner);
    Reducer reducer(group, make_slots({4, 4}));
    group->clear_calls();
    reducer.prepare(false);
    fill(reducer, 0, 5 + rank);
    reducer.mark_ready(0);
    reducer.finish();
    EXPECT_TRUE(group->calls().empty());
    expect_all(reducer.gradient(0), 5 + rank);
    EXPECT_EQ(reducer.counters().passes, 0U);
  });
}

TEST(Reducer, RebuildTakesRankZerosOrderAndCarriesContents) {
  std::vector<std::vector<std::vector<std::size_t>>> plans(3);
  on_ranks(3, [&](int rank, const auto& group) {
    int moved = 0;
    Reducer reducer(group, make_slots({16, 16, 16, 16}),
                    {.bucket_cap_bytes = {128}, .rebuild = true, .on_moved = [&] { ++moved; }});
    EXPECT_EQ(slots_of(reducer), (std::vector<std::vector<std::size_t>>{{3, 2}, {1, 0}}));
    const std::vector<std::vector<std::size_t>> arrivals = {{1, 3, 0, 2}, {0, 1, 2, 3}, {3, 2, 1, 0}};
    for (int step = 0; step < 3; ++step) {
      const void* before = reducer.gradient_data(0);
      reducer.prepare();
      EXPECT_EQ(moved, step == 0 ? 0 : 1);
      if (step == 1) {
        EXPECT_NE(reducer.gradient_data(0), before);
        for (std::size_t slot = 0; slot < 4; ++slot)
          expect_all(reducer.gradient(slot), 10.0 * static_cast<double>(slot) + 1);
      }
      for (const std::size_t slot : arrivals[static_cast<std::size_t>(rank)]) {
        fill(reducer, slot, 10.0 * static_cast<double>(slot) + rank);
        reducer.mark_ready(slot);
      }
      reducer.finish();
    }
    EXPECT_EQ(reducer.counters().rebuilds, 1U);
    plans[static_cast<std::size_t>(rank)] = slots_of(reducer);
  });
  for (const auto& plan : plans) EXPECT_EQ(plan, (std::vector<std::vector<std::size_t>>{{1, 3}, {0, 2}}));
}

TEST(Reducer, DelayedRankChangesNothing) {
  on_ranks(3, [](int rank, const auto& group) {
    Reducer reducer(group, make_slots({64, 64, 64}), {.bucket_cap_bytes = {256}});
    for (int step = 0; step < 3; ++step) {
      reducer.prepare();
      for (std::size_t slot = 3; slot-- > 0;) {
        if (rank == step) std::this_thread::sleep_for(std::chrono::milliseconds(15));
        fill(reducer, slot, 3.0 * rank + step);
        reducer.mark_ready(slot);
      }
      reducer.finish();
      for (std::size_t slot = 0; slot < 3; ++slot) expect_all(reducer.gradient(slot), 3.0 + step);
    }
  });
}

TEST(Reducer, ReadyMayComeFromSeveralThreads) {
  on_ranks(2, [](int rank, const auto& group) {
    const std::size_t count = 24;
    Reducer reducer(group, make_slots(std::vector<std::int64_t>(count, 32)), {.bucket_cap_bytes = {256}});
    for (int step = 0; step < 5; ++step) {
      reducer.prepare();
      std::vector<std::thread> threads;
      for (std::size_t part = 0; part < 3; ++part) {
        threads.emplace_back([&, part] {
          for (std::size_t slot = part; slot < count; slot += 3) {
            fill(reducer, slot, rank + 2.0 * static_cast<double>(slot));
            reducer.mark_ready(slot);
          }
        });
      }
      for (auto& thread : threads) thread.join();
      reducer.finish();
      for (std::size_t slot = 0; slot < count; ++slot)
        expect_all(reducer.gradient(slot), 0.5 + 2.0 * static_cast<double>(slot));
    }
  });
}

TEST(Reducer, NumberOfCollectivesFollowsTheCap) {
  struct Case {
    std::int64_t cap;
    std::uint64_t collectives;
  };
  for (const Case& one : {Case{256 << 10, 5}, Case{1, 20}, Case{1 << 30, 1}}) {
    on_ranks(2, [&](int rank, const auto& group) {
      Reducer reducer(group, make_slots(std::vector<std::int64_t>(20, 16 << 10)), {.bucket_cap_bytes = {one.cap}});
      reducer.prepare();
      for (std::size_t slot = 20; slot-- > 0;) {
        fill(reducer, slot, 2.0 * rank + static_cast<double>(slot));
        reducer.mark_ready(slot);
      }
      reducer.finish();
      EXPECT_EQ(reducer.counters().collectives, one.collectives);
      EXPECT_EQ(reducer.counters().launched_before_last, one.collectives - 1);
      for (std::size_t slot = 0; slot < 20; ++slot) expect_all(reducer.gradient(slot), 1.0 + static_cast<double>(slot));
    });
  }
}

TEST(Reducer, WaitingAndSpansAreRecorded) {
  if (on_cuda()) GTEST_SKIP() << "the host does not wait there: see DeviceReducer";
  trace::clear();
  trace::set_enabled(true);
  const std::int64_t blocked_before = trace::total(trace::Counter::blocking_ns);
  on_ranks(2, [](int, const auto& inner) {
    const auto group = std::make_shared<RecordingGroup>(inner);
    Reducer reducer(group, make_slots({16, 16}), {.bucket_cap_bytes = {64}});
    group->set_delay(std::chrono::milliseconds(20));
    reducer.prepare();
    for (std::size_t slot = 2; slot-- > 0;) reducer.mark_ready(slot);
    reducer.finish();
    // The last bucket goes out in finish and takes 20 ms; how much of it is waited for is the machine's business.
    EXPECT_GT(reducer.counters().exposed_ms, 0.0);
    EXPECT_GT(reducer.counters().communication_ms, 0.0);
  });
  trace::set_enabled(false);
  int ready = 0;
  int collectives = 0;
  std::int64_t waited_ns = 0;
  for (const trace::Span& span : trace::spans()) {
    if (span.kind == trace::SpanKind::wait) waited_ns += span.end_ns - span.begin_ns;
    if (!std::string(span.label).starts_with("bucket ")) continue;
    ready += span.kind == trace::SpanKind::bucket_ready ? 1 : 0;
    collectives += span.kind == trace::SpanKind::collective && span.end_ns > span.begin_ns ? 1 : 0;
  }
  EXPECT_EQ(ready, 4);
  EXPECT_EQ(collectives, 4);
  // No wait is there twice: once as the group's and once as the bucket's.
  EXPECT_EQ(waited_ns, trace::total(trace::Counter::blocking_ns) - blocked_before);
}

TEST(Reducer, MisuseIsRefused) {
  on_ranks(2, [](int, const auto& group) {
    Reducer reducer(group, make_slots({4}));
    EXPECT_TRUE(has(text_of<InvalidArgument>([&] { reducer.mark_ready(0); }), "'p0' became ready outside a pass"));
    EXPECT_TRUE(has(text_of<InvalidArgument>([&] { reducer.finish(); }), "finish without prepare"));
    EXPECT_TRUE(has(text_of<InvalidArgument>([&] { reducer.gradient(3); }), "slot 3 of 1"));
    reducer.prepare();
    EXPECT_TRUE(reducer.in_pass());
    EXPECT_TRUE(has(text_of<InvalidArgument>([&] { reducer.prepare(); }), "within a pass"));
    EXPECT_TRUE(has(text_of<InvalidArgument>([&] { reducer.set_active(0, false); }), "within a pass"));
    reducer.mark_ready(0);
    reducer.finish();
    EXPECT_FALSE(reducer.in_pass());
  });
}

}  // namespace
