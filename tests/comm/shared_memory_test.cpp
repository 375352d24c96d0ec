// Sums of ranks on one host: through shared memory, and the same bits as through the connections.
#include "comm/gloo/shared_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "support/ranks.h"

namespace ddp::test {
namespace {

/// Mappings of lane memory in this process.
int mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("ddp-lane") != std::string::npos ? 1 : 0;
  return count;
}

/// Numbers whose sum depends on the order of adding, so that equal bits mean equal order.
Tensor contribution(std::int64_t n, int rank) {
  std::vector<float> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] =
        static_cast<float>((i * 7919 + static_cast<std::size_t>(rank) * 104729) % 10007) * (rank == 1 ? 1e6F : 1e-3F);
  }
  return tensor(values, {n});
}

struct Outcome {
  std::vector<std::vector<float>> sums;  // rank 0's, by size
  int mapped = 0;
};

Outcome sums_of(int ranks, const std::vector<std::int64_t>& sizes, const std::function<bool(int)>& shared) {
  Outcome outcome;
  std::mutex mutex;
  run_ranks(ranks,
            [&](int rank, const std::shared_ptr<comm::ProcessGroup>& group) {
              for (const std::int64_t n : sizes) {
                const Tensor mine = contribution(n, rank);
                group->all_reduce(mine).wait();
                if (rank == 0) outcome.sums.push_back(mine.to_vector<float>());
                // Every rank holds the same bits.
                const Tensor all = empty({ranks, n});
                group->all_gather(all, mine).wait();
                const std::vector<float> flat = all.to_vector<float>();
                const std::scoped_lock lock(mutex);
                for (int other = 1; other < ranks; ++other) {
                  EXPECT_EQ(
                      std::memcmp(flat.data(), flat.data() + other * n, static_cast<std::size_t>(n) * sizeof(float)),
                      0);
                }
              }
              group->barrier();
              if (rank == 0) outcome.mapped = mappings();
              group->barrier();
            },
            {.backend = "gloo", .shared_memory = shared});
  return outcome;
}

// Around the direct limit of 16 KiB, uneven parts, one block, and more than two blocks of 8 MiB.
const std::vector<std::int64_t> kSizes = {1, 4096, 4097, 100'003, 2'097'152, 5'000'011};

TEST(SharedMemoryLane, GivesTheSameBitsAsTheConnections) {
  for (const int ranks : {2, 3}) {
    std::vector<std::int64_t> sizes = kSizes;
    if (ranks == 3) sizes.resize(4);  // the large ones once: thread sanitizer takes its time over them
    const Outcome shared = sums_of(ranks, sizes, [](int) { return true; });
    const Outcome separate = sums_of(ranks, sizes, [](int) { return false; });
    EXPECT_EQ(shared.mapped, ranks * ranks);  // each rank, here a thread, maps every rank's
    EXPECT_EQ(separate.mapped, 0);
    ASSERT_EQ(shared.sums.size(), separate.sums.size());
    for (std::size_t i = 0; i < shared.sums.size(); ++i) EXPECT_EQ(shared.sums[i], separate.sums[i]) << kSizes[i];
  }
  EXPECT_EQ(mappings(), 0);
}

TEST(SharedMemoryLane, OneRankWithoutItAndAllUseTheConnections) {
  const Outcome mixed = sums_of(3, {100'003}, [](int rank) { return rank != 1; });
  const Outcome separate = sums_of(3, {100'003}, [](int) { return false; });
  EXPECT_EQ(mixed.mapped, 0);
  EXPECT_EQ(mixed.sums, separate.sums);
}

TEST(SharedMemoryLane, LanesHaveTheirOwnAndMaySumAtOnce) {
  run_ranks(2,
            [](int rank, const std::shared_ptr<comm::ProcessGroup>& group) {
              group->ensure_lanes(3);
              for (int round = 0; round < 20; ++round) {
                std::vector<Tensor> tensors;
                std::vector<comm::Work> works;
                for (int lane = 0; lane < 3; ++lane) {
                  tensors.push_back(full({50'000 + lane}, (rank + 1) * (lane + 1) + round));
                  works.push_back(group->all_reduce(tensors.back(), comm::ReduceOp::sum, {.lane = lane}));
                }
                for (int lane = 0; lane < 3; ++lane) {
                  works[static_cast<std::size_t>(lane)].wait();
                  EXPECT_TRUE(equal(tensors[static_cast<std::size_t>(lane)],
                                    full({50'000 + lane}, 3 * (lane + 1) + 2 * round)));
                }
              }
            },
            {.backend = "gloo"});
}

TEST(SharedMemoryLane, UnequalSizesFailOnBothRanks) {
  std::mutex mutex;
  int failures = 0;
  run_ranks(2,
            [&](int rank, const std::shared_ptr<comm::ProcessGroup>& group) {
              const Tensor first = zeros({10'000});
              group->all_reduce(first).wait();  // the lane is shared from here on
              try {
                group->all_reduce(zeros({rank == 0 ? 20'000 : 20'001})).wait();
              } catch (const CommError& error) {
                const std::string text = error.what();
                EXPECT_NE(text.find("20000"), std::string::npos) << text;
                EXPECT_NE(text.find("20001"), std::string::npos) << text;
                const std::scoped_lock lock(mutex);
                ++failures;
              }
            },
            {.backend = "gloo", .timeout = std::chrono::milliseconds(5000)});
  EXPECT_EQ(failures, 2);
}

TEST(SharedMemory, IsOpenedOnlyWithItsSecretAndSize) {
  const comm::SharedMemory::Secret secret{1, 2};
  auto memory = comm::SharedMemory::create(4096, secret);
  ASSERT_TRUE(memory);
  std::memset(memory->data(), 7, 4096);
  const auto same = comm::SharedMemory::open(getpid(), memory->descriptor(), 4096, secret);
  ASSERT_TRUE(same);
  EXPECT_EQ(static_cast<int>(same->data()[4095]), 7);
  EXPECT_FALSE(comm::SharedMemory::open(getpid(), memory->descriptor(), 4096, {1, 3}));
  EXPECT_FALSE(comm::SharedMemory::open(getpid(), memory->descriptor(), 8192, secret));
  EXPECT_FALSE(comm::SharedMemory::open(getpid(), 0, 4096, secret));
  EXPECT_FALSE(comm::SharedMemory::open(getpid(), -1, 4096, secret));
  const int descriptor = memory->descriptor();
  memory->close_descriptor();
  EXPECT_FALSE(comm::SharedMemory::open(getpid(), descriptor, 4096, secret));
  EXPECT_EQ(static_cast<int>(same->data()[0]), 7);  // a mapping outlives the descriptor
}

}  // namespace
}  // namespace ddp::test
