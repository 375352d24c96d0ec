// What goes wrong on one rank must be known, by name, on all.
#include <stdexcept>

#include "parallel/support.h"

namespace {

using namespace ddp;
using namespace ddp::test;
using parallel::GradientSlot;
using parallel::Reducer;
using parallel::ReducerOptions;

void run_pass(Reducer& reducer, double value) {
  reducer.prepare();
  for (std::size_t slot = reducer.num_slots(); slot-- > 0;) {
    Tensor gradient = reducer.gradient(slot);
    gradient.fill_(value);
    reducer.mark_ready(slot);
  }
  end_pass(reducer);
}

void expect_mean(Reducer& reducer, double value) {
  for (std::size_t slot = 0; slot < reducer.num_slots(); ++slot) {
    for (const double element : reducer.gradient(slot).to_vector<double>()) ASSERT_EQ(element, value);
  }
}

TEST(ReducerFaults, MissingGradientIsNamedOnEveryRankAndTheNextPassWorks) {
  for (const int size : {2, 4}) {
    on_ranks(size, [&](int rank, const auto& group) {
      Reducer reducer(group, make_slots({8, 8, 8}), {.bucket_cap_bytes = {32}, .rebuild = true});
      reducer.prepare();
      reducer.mark_ready(2);
      if (rank != size - 1) reducer.mark_ready(1);
      reducer.mark_ready(0);
      const std::string text = text_of<ReductionError>([&] { end_pass(reducer); });
      EXPECT_TRUE(has(text, concat("'p1' got no gradient on rank ", size - 1))) << text;
      EXPECT_FALSE(has(text, "p0") || has(text, "p2")) << text;
      EXPECT_FALSE(reducer.in_pass());
      run_pass(reducer, rank);
      expect_mean(reducer, (size - 1) / 2.0);
      EXPECT_EQ(reducer.counters().rebuilds, 0U);  // a faulty pass says nothing about the order
    });
  }
}

TEST(ReducerFaults, MissingEverywhere) {
  on_ranks(3, [](int, const auto& group) {
    Reducer reducer(group, make_slots({8, 8}));
    reducer.prepare();
    reducer.mark_ready(0);
    const std::string text = text_of<ReductionError>([&] { end_pass(reducer); });
    EXPECT_TRUE(has(text, "'p1' got no gradient on all 3 ranks")) << text;
  });
}

TEST(ReducerFaults, ReadyTwiceIsNamedOnEveryRank) {
  on_ranks(2, [](int rank, const auto& group) {
    // In the first bucket: it is under way when the second call comes.
    Reducer reducer(group, make_slots({8, 8, 8}), {.bucket_cap_bytes = {32}});
    reducer.prepare();
    for (std::size_t slot = 3; slot-- > 0;) reducer.mark_ready(slot);
    if (rank == 0) reducer.mark_ready(2);
    const std::string text = text_of<ReductionError>([&] { end_pass(reducer); });
    EXPECT_TRUE(has(text, "'p2' became ready twice in one pass on rank 0")) << text;
    run_pass(reducer, 2);
    expect_mean(reducer, 2);
  });
}

TEST(ReducerFaults, DifferentActiveSlotsAreNamed) {
  on_ranks(3, [](int rank, const auto& group) {
    Reducer reducer(group, make_slots({8, 8}));
    if (rank == 1) reducer.set_active(0, false);
    reducer.prepare();
    reducer.mark_ready(1);
    if (rank != 1) reducer.mark_ready(0);
    const std::string text = text_of<ReductionError>([&] { end_pass(reducer); });
    EXPECT_TRUE(has(text, "'p0' is frozen (requires_grad false) on rank 1 and not on the others")) << text;
  });
}

TEST(ReducerFaults, InactiveOnAllRanksIsNotMissing) {
  on_ranks(2, [](int rank, const auto& group) {
    Reducer reducer(group, make_slots({8, 8}));
    reducer.set_active(0, false);
    reducer.prepare();
    Tensor gradient = reducer.gradient(1);
    gradient.fill_(2.0 * rank);
    reducer.mark_ready(1);
    end_pass(reducer);
    EXPECT_EQ(gradient.to_vector<double>(), std::vector<double>(8, 1.0));
    reducer.set_active(0, true);
    run_pass(reducer, 4.0 * rank);
    expect_mean(reducer, 2);
  });
}

TEST(ReducerFaults, InactiveSlotThatBecomesReady) {
  on_ranks(2, [](int, const auto& group) {
    Reducer reducer(group, make_slots({8, 8}));
    reducer.set_active(0, false);
    reducer.prepare();
    reducer.mark_ready(1);
    reducer.mark_ready(0);
    const std::string text = text_of<ReductionError>([&] { end_pass(reducer); });
    EXPECT_TRUE(has(text, "'p0' got a gradient though frozen when the pass began on all 2 ranks")) << text;
  });
}

TEST(ReducerFaults, RanksInDifferentPassesAreNamed) {
  if (on_cuda()) GTEST_SKIP() << "two reducers meet there by mistake, which only lanes shared by all allow";
  on_ranks(2, [](int rank, const auto& group) {
    // Two reducers with equal plans: rank 0 uses the first twice, rank 1 each of them once.
    Reducer reducer(group, make_slots({8}));
    Reducer second(group, make_slots({8}));
    if (rank == 0) run_pass(reducer, 1);
    if (rank == 1) {
      run_pass(second, 1);
    }

    const std::string text = text_of<ReductionError>([&] { run_pass(reducer, 1); });
    EXPECT_TRUE(has(text, "rank 0 is in synchronised pass 2 and rank 1 in pass 1")) << text;
  });
}

TEST(ReducerFaults, RankThatGivesUpIsNamedAndTheNextPassWorks) {
  on_ranks(3, [](int rank, const auto& group) {
    Reducer reducer(group, make_slots({8, 8, 8}), {.bucket_cap_bytes = {32}});
    for (int round = 0; round < 3; ++round) {
      reducer.prepare();
      reducer.mark_ready(2);
      if (rank == round) {
        reducer.abandon();
      } else {
        reducer.mark_ready(1);
        reducer.mark_ready(0);
        const std::string text = text_of<ReductionError>([&] { end_pass(reducer); });
        EXPECT_TRUE(has(text, concat("rank ", round, " left backward by an exception"))) << text;
      }
      EXPECT_FALSE(reducer.in_pass());
      run_pass(reducer, rank);
      expect_mean(reducer, 1);
    }
  });
}

TEST(ReducerFaults, UnwindingThroughTheReducerDoesNotBlock) {
  on_ranks(2, [](int rank, const auto& group) {
    if (rank == 1) {
      try {
        Reducer reducer(group, make_slots({8, 8}), {.bucket_cap_bytes = {32}});
        reducer.prepare();
        reducer.mark_ready(1);
        throw std::runtime_error("bad sample 23");
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "bad sample 23");
      }
      return;
    }
    Reducer reducer(group, make_slots({8, 8}), {.bucket_cap_bytes = {32}});
    const std::string text = text_of<ReductionError>([&] { run_pass(reducer, 1); });
    EXPECT_TRUE(has(text, "rank 1 left backward")) << text;
  });
}

TEST(ReducerFaults, PeerThatNeverComesIsATimeoutNamingTheBucket) {
  on_ranks(2,
           [](int rank, const auto& group) {
             Reducer reducer(group, make_slots({8, 8}), {.bucket_cap_bytes = {32}});
             if (rank == 1) return;
             const std::string text = text_of<CommError>([&] { run_pass(reducer, 1); });
             EXPECT_TRUE(has(text, "bucket 0: p1")) << text;
             EXPECT_FALSE(reducer.in_pass());
           },
           {.timeout = std::chrono::milliseconds(1500)});
}

TEST(ReducerFaults, AbortedGroupFailsThePassAndTheDestructorDoesNotBlock) {
  on_ranks(2, [](int rank, const auto& group) {
    Reducer reducer(group, make_slots({8, 8}), {.bucket_cap_bytes = {32}});
    if (rank == 1) {
      group->abort("operator pressed stop");
      return;
    }
    const std::string text = text_of<CommError>([&] { run_pass(reducer, 1); });
    EXPECT_TRUE(has(text, "operator pressed stop")) << text;
    EXPECT_FALSE(reducer.in_pass());
  });
}

class StartDifference : public testing::TestWithParam<int> {};

// Every rank throws the same text, which has both sides and the ranks.
TEST_P(StartDifference, IsNamedOnEveryRank) {
  struct Case {
    std::vector<GradientSlot> odd;
    ReducerOptions options;
    std::vector<std::string> parts;
  };
  const std::vector<GradientSlot> usual = put({{"w", {5, 3}}, {"b", {5}}});
  const std::vector<Case> cases = {
      {{{"w", {5, 4}}, {"b", {5}}}, {}, {"sizes of parameter 'w'", "[5, 3] on rank 0", "[5, 4] on rank "}},
      {{{"w", {5, 3}}}, {}, {"parameter 1: 'b' [5] float32 on rank 0, none on rank "}},
      {{{"w", {5, 3}, DType::float64}, {"b", {5}}},
       {},
       {"dtype of parameter 'w'", "float32 on rank 0, float64 on rank "}},
      {{}, {}, {"parameter 0: 'w' [5, 3] float32 on rank 0, none on rank ", "2 parameters on rank 0, 0 on rank "}},
      {{{"b", {5}}, {"w", {5, 3}}}, {}, {"parameter 0: 'w' [5, 3] float32 on rank 0, 'b' [5] float32 on rank "}},
      {{{"w", {5, 3}, DType::float32, Device::cpu(), {1, 5}}, {"b", {5}}}, {}, {"strides of parameter 'w'", "[1, 5]"}},
      {usual, {.bucket_cap_bytes = {77}}, {"option bucket_cap_bytes: 26214400 on rank 0, 77 on rank "}},
      {{{"w", {5, 3}, DType::int64}, {"b", {5}}}, {}, {"refuses: gradient 'w' is int64"}},
  };
  const int size = GetParam();
  for (const Case& one : cases) {
    on_ranks(size, [&](int rank, const auto& group) {
      const bool odd = rank == size - 1;
      const std::string text = text_of<InvalidArgument>(
          [&] { Reducer(group, odd ? put(one.odd) : usual, odd ? one.options : ReducerOptions{}); });
      for (const std::string& part : one.parts) EXPECT_TRUE(has(text, part)) << text;
      EXPECT_TRUE(has(text, concat("rank ", size - 1))) << text;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, StartDifference, testing::Values(2, 3));

TEST(ReducerAlone, NothingIsSentCopiedOrMissing) {
  on_ranks(1, [](int, const auto& group) {
    const Tensor own = full({3}, 7.0, {DType::float32, test_device()});
    std::vector<GradientSlot> slots = make_slots({3, 5});
    slots[0].memory = own.data();
    const auto before = group->counters().collectives;
    Reducer reducer(group, slots, {.rebuild = true});
    EXPECT_TRUE(reducer.plan().empty());
    EXPECT_EQ(reducer.gradient_data(0), own.data());
    for (int step = 0; step < 2; ++step) {
      reducer.prepare();
      reducer.mark_ready(0);
      end_pass(reducer);
    }
    EXPECT_EQ(own.to_vector<double>(), std::vector<double>(3, 7));
    EXPECT_EQ(reducer.counters().collectives + reducer.counters().bytes_copied, 0U);
    EXPECT_EQ(group->counters().collectives, before);
  });
}

}  // namespace
