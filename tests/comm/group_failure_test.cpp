// What every group does when something is wrong: nothing hangs, nothing differs silently, texts name who and what.
#include <atomic>
#include <thread>

#include "comm/group_cases.h"
#include "comm/process_group_conformance.h"

namespace ddp::test {
namespace {

using comm::CollectiveOptions;
using std::chrono::milliseconds;

// Runs ranks of which each is expected to fail; returns their texts. Unlike run(), an error ends no other rank.
std::vector<std::string> texts_of_failures(const GroupCase& which, milliseconds timeout, const RankFunction& body,
                                           bool check_collectives = false) {
  std::vector<std::string> texts(static_cast<std::size_t>(which.size));
  std::mutex mutex;
  std::vector<std::shared_ptr<comm::ProcessGroup>> keep;
  run_ranks(
      which.size,
      [&](int rank, const auto& group) {
        {
          const std::lock_guard lock(mutex);
          keep.push_back(group);
        }
        test_device = group->device();
        try {
          body(rank, group);
        } catch (const CommError& error) {
          texts[static_cast<std::size_t>(rank)] = error.what();
        }
      },
      {.backend = which.backend, .device = which.device, .timeout = timeout, .check_collectives = check_collectives});
  return texts;
}

TEST_P(GroupTest, WrongTensorsAreRefusedUnchanged) {
  run([&](int, const auto& group) {
    const Tensor base = matrix(4, 4, [](auto r, auto c) { return static_cast<float>(4 * r + c); });
    const auto before = base.template to_vector<float>();
    const Tensor column = from_blob(base.data(), {4}, base.options(), {4});
    const auto text = error_text<InvalidArgument>([&] { group->all_reduce(column); });
    EXPECT_CONTAINS(text, "not contiguous");
    EXPECT_CONTAINS(text, "[4]");
    EXPECT_EQ(base.template to_vector<float>(), before);

    EXPECT_THROW(group->all_reduce(Tensor()), InvalidArgument);
    EXPECT_THROW(group->broadcast(base, size()), InvalidArgument);
    EXPECT_THROW(group->broadcast(base, -1), InvalidArgument);
    EXPECT_THROW(group->all_reduce_coalesced({base, numbers(DType::float64, 1, 0)}), InvalidArgument);
    EXPECT_THROW(group->all_reduce_coalesced({base, base}), InvalidArgument);
    EXPECT_THROW(group->all_reduce(base, comm::ReduceOp::sum, {.lane = group->lanes()}), InvalidArgument);
    EXPECT_THROW(group->all_reduce(empty({1}, {.device = Device::cpu(3)})), InvalidArgument);
    const auto shapes =
        error_text<InvalidArgument>([&] { group->all_gather(empty({size() + 1, 2}, on()), empty({2}, on())); });
    EXPECT_CONTAINS(shapes, concat("[", size() + 1, ", 2]"));
    EXPECT_THROW(group->all_gather(empty({size(), 2}, on(DType::float64)), empty({2}, on())), InvalidArgument);
    EXPECT_THROW(group->send(base, group->rank()), InvalidArgument);
    EXPECT_THROW(group->new_group({0, 0}), InvalidArgument);
    EXPECT_THROW(group->new_group({size()}), InvalidArgument);
    EXPECT_EQ(base.template to_vector<float>(), before);
    // The group works on.
    const Tensor one = numbers(DType::float32, 1, 1);
    group->all_reduce(one).wait();
    EXPECT_EQ(one.template to_vector<float>()[0], static_cast<float>(size()));
  });
}

TEST_P(GroupTest, ALateRankIsNamed) {
  const int late = size() - 1;
  std::atomic<int> failed{0};
  const auto texts = texts_of_failures(GetParam(), milliseconds(900), [&](int rank, const auto& group) {
    if (rank == late) {
      while (failed.load() < size() - 1) std::this_thread::sleep_for(milliseconds(5));
      group->all_reduce(numbers(DType::float32, 5, 1)).wait();
      return;
    }
    const auto work = group->all_reduce(numbers(DType::float32, 5, 1), comm::ReduceOp::sum, {.label = "bucket 7"});
    try {
      work.wait();
      ADD_FAILURE() << "no error";
    } catch (const CommError&) {
      ++failed;
      EXPECT_TRUE(work.is_completed());
      EXPECT_TRUE(work.error());
      throw;
    }
  });
  int timeouts = 0;
  for (int rank = 0; rank < late; ++rank) {
    const auto& text = texts[static_cast<std::size_t>(rank)];
    EXPECT_CONTAINS(text, "timed out after");
    EXPECT_CONTAINS(text, "bucket 7");
    EXPECT_CONTAINS(text, "all_reduce");
    if (contains(text, concat("not arrived: rank ", late))) ++timeouts;
  }
  EXPECT_GE(timeouts, 1) << texts.front();
  EXPECT_FALSE(texts.back().empty()) << "the late rank's call must fail too";
}

TEST_P(GroupTest, TheCallsOwnTimeOutCounts) {
  std::atomic<bool> over{false};
  const auto texts = texts_of_failures(GetParam(), std::chrono::seconds(20), [&](int rank, const auto& group) {
    if (rank == 0) {
      try {
        group->barrier({.label = "save", .timeout = milliseconds(150)});
      } catch (const TimeoutError&) {
        over = true;
        throw;
      }
    } else {
      while (!over) std::this_thread::sleep_for(milliseconds(5));
    }
  });
  EXPECT_CONTAINS(texts[0], "limit 150 ms");
  EXPECT_CONTAINS(texts[0], "barrier");
  EXPECT_CONTAINS(texts[0], "save");
}

TEST_P(GroupTest, DifferentSizesFailEverywhereNamingBoth) {
  // The odd one out is the last rank, smaller or larger.
  const std::int64_t other = size() % 2 == 0 ? 70 : 301;
  {
    const auto texts = texts_of_failures(GetParam(), std::chrono::seconds(20), [&](int rank, const auto& group) {
      group->all_reduce(numbers(DType::float32, rank == size() - 1 ? other : 110, 1)).wait();
      ADD_FAILURE() << "rank " << rank << " got a result";
    });
    for (const auto& text : texts) {
      EXPECT_CONTAINS(text, "110 x float32");
      EXPECT_CONTAINS(text, concat(other, " x float32"));
      EXPECT_CONTAINS(text, concat("rank ", size() - 1));
    }
  }
}

TEST_P(GroupTest, DifferentDtypesOfOneLengthFailEverywhere) {
  const auto texts = texts_of_failures(GetParam(), std::chrono::seconds(20), [&](int rank, const auto& group) {
    const Tensor tensor = rank == 0 ? numbers(DType::float32, 60, 1) : numbers(DType::float64, 30, 1);
    group->all_reduce(tensor).wait();
    ADD_FAILURE() << "rank " << rank << " got a result";
  });
  for (const auto& text : texts) {
    EXPECT_CONTAINS(text, "60 x float32");
    EXPECT_CONTAINS(text, "30 x float64");
  }
}

TEST_P(GroupTest, DifferentCallsFailEverywhere) {
  const auto texts = texts_of_failures(GetParam(), std::chrono::seconds(20), [&](int rank, const auto& group) {
    const Tensor tensor = numbers(DType::float32, 8, 1);
    if (rank == 0) {
      group->broadcast(tensor, 0).wait();
    } else {
      group->all_reduce(tensor).wait();
    }
    ADD_FAILURE() << "rank " << rank << " got a result";
  });
  for (const auto& text : texts) {
    EXPECT_CONTAINS(text, "broadcast");
    EXPECT_CONTAINS(text, "all_reduce");
  }
}

TEST_P(GroupTest, CheckedCollectivesCompareLabels) {
  if (GetParam().backend == "local") GTEST_SKIP() << "an option of init_process_group";
  const auto texts = texts_of_failures(
      GetParam(), std::chrono::seconds(20),
      [&](int rank, const auto& group) {
        const Tensor tensor = numbers(DType::float32, 8, 1);
        group->all_reduce(tensor, comm::ReduceOp::sum, {.label = "same"}).wait();
        EXPECT_EQ(tensor.template to_vector<float>()[3], static_cast<float>(size()));
        group->all_reduce(tensor, comm::ReduceOp::sum, {.label = rank == 0 ? "left" : "right"}).wait();
        ADD_FAILURE() << "rank " << rank << " got a result";
      },
      true);
  for (const auto& text : texts) {
    EXPECT_CONTAINS(text, "left");
    EXPECT_CONTAINS(text, "right");
  }
}

TEST_P(GroupTest, AbortWakesEveryRankAndStays) {
  const auto texts = texts_of_failures(GetParam(), std::chrono::seconds(20), [&](int rank, const auto& group) {
    if (rank == 0) {
      std::this_thread::sleep_for(milliseconds(30));
      group->abort("the disk is full");
      // Later calls fail with the first reason.
      const auto text = error_text<CommError>([&] { group->barrier(); });
      EXPECT_CONTAINS(text, "the disk is full");
      const auto work = group->all_reduce(numbers(DType::float32, 1, 1));
      EXPECT_TRUE(work.is_completed());
      EXPECT_TRUE(work.error());
      work.wait();
    } else {
      group->all_reduce(numbers(DType::float32, 3, 1)).wait();
    }
    ADD_FAILURE() << "rank " << rank << " got a result";
  });
  for (const auto& text : texts) EXPECT_CONTAINS(text, "the disk is full");
}

TEST_P(GroupTest, DroppedWorkStillRuns) {
  run([&](int rank, const auto& group) {
    const Tensor memory = numbers(DType::float32, 1000, rank);
    {
      // Neither Work nor Tensor is kept.
      group->all_reduce(from_blob(memory.data(), {1000}, memory.options()));
    }
    group->barrier();
    EXPECT_EQ(memory.template to_vector<float>()[999], static_cast<float>(size() * (size() - 1)) / 2);
  });
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Groups, GroupTest, ::testing::ValuesIn(few_group_cases()), group_case_name);

}  // namespace ddp::test
