#include "ddp/data/sampler.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "data/files.h"
#include "ddp/core/error.h"

namespace ddp::data {
namespace {

using test::expect_error;
using Indices = std::vector<std::int64_t>;

// All replicas of one test have the same seed.
std::uint64_t as_given(std::uint64_t seed) { return seed; }

std::vector<Indices> shares(std::int64_t size, int replicas, DistributedSamplerOptions options,
                            std::int64_t epoch = 0) {
  std::vector<Indices> result;
  if (options.seed) options.agree = as_given;
  for (int rank = 0; rank < replicas; ++rank) {
    DistributedSampler sampler(size, replicas, rank, options);
    sampler.set_epoch(epoch);
    result.push_back(sampler.indices());
    EXPECT_EQ(sampler.size(), static_cast<std::int64_t>(result.back().size()));
  }
  return result;
}

Indices joined_sorted(const std::vector<Indices>& parts) {
  Indices all;
  for (const Indices& part : parts) all.insert(all.end(), part.begin(), part.end());
  std::sort(all.begin(), all.end());
  return all;
}

Indices up_to(std::int64_t n) {
  Indices result(static_cast<std::size_t>(n));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

TEST(SequentialSampler, CountsUp) {
  EXPECT_EQ(SequentialSampler(4).indices(), (Indices{0, 1, 2, 3}));
  EXPECT_TRUE(SequentialSampler(0).indices().empty());
  expect_error<InvalidArgument>([] { SequentialSampler(-2); }, {"-2"});
}

TEST(DistributedSampler, PadsFromTheFrontAsPyTorch) {
  EXPECT_EQ(shares(10, 4, {.shuffle = false}), (std::vector<Indices>{{0, 4, 8}, {1, 5, 9}, {2, 6, 0}, {3, 7, 1}}));
  // Fewer examples than the padding needs: the list is repeated as a whole.
  EXPECT_EQ(shares(2, 5, {.shuffle = false}), (std::vector<Indices>{{0}, {1}, {0}, {1}, {0}}));
  EXPECT_EQ(shares(1, 3, {.shuffle = true}), (std::vector<Indices>{{0}, {0}, {0}}));
  EXPECT_EQ(shares(0, 3, {}), (std::vector<Indices>{{}, {}, {}}));
}

TEST(DistributedSampler, DropLastCutsTheTail) {
  EXPECT_EQ(shares(11, 4, {.shuffle = false, .drop_last = true}),
            (std::vector<Indices>{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(shares(12, 4, {.shuffle = false, .drop_last = true})[3], (Indices{3, 7, 11}));
  EXPECT_EQ(shares(3, 4, {.drop_last = true}), (std::vector<Indices>{{}, {}, {}, {}}));
}

TEST(DistributedSampler, ThePermutationIsTheDocumentedOne) {
  // From an independent implementation of the description in sampler.h.
  EXPECT_EQ(shares(12, 1, {})[0], (Indices{5, 11, 6, 7, 3, 1, 2, 9, 8, 0, 4, 10}));
  const Indices five = {11, 10, 3, 7, 6, 5, 9, 1, 0, 2, 8, 4};
  EXPECT_EQ(shares(12, 1, {.seed = 5})[0], five);
  EXPECT_EQ(shares(12, 1, {.seed = 2}, 3)[0], five);  // seed + epoch decides
  EXPECT_EQ(shares(12, 3, {.seed = 5})[1], (Indices{10, 6, 1, 8}));
}

TEST(DistributedSampler, SharesAreDisjointAndCoverWithoutASeed) {
  for (const int replicas : {2, 3, 4}) {
    const auto parts = shares(24, replicas, {});
    EXPECT_EQ(joined_sorted(parts), up_to(24));
  }
  const auto padded = shares(22, 4, {});
  const Indices all = joined_sorted(padded);
  EXPECT_EQ(all.size(), 24U);
  EXPECT_EQ(std::set<std::int64_t>(all.begin(), all.end()).size(), 22U);
}

TEST(DistributedSampler, DifferentSeedsAreAgreedOrRefused) {
  // The ranks' seeds are 11 and 12; the agreement hands out rank 0's.
  std::vector<Indices> parts;
  for (int rank = 0; rank < 2; ++rank) {
    DistributedSampler sampler(18, 2, rank, {.seed = 11 + rank, .agree = [](std::uint64_t) { return 11U; }});
    parts.push_back(sampler.indices());
  }
  EXPECT_EQ(joined_sorted(parts), up_to(18));
  EXPECT_EQ(parts, shares(18, 2, {.seed = 11}));

  const auto refuse = [](std::uint64_t own) -> std::uint64_t {
    detail::fail<InvalidArgument>("seeds differ: rank 0 has 11, rank 1 has ", own);
  };
  expect_error<InvalidArgument>([&] { DistributedSampler(18, 2, 1, {.seed = 12, .agree = refuse}); },
                                {"rank 0 has 11", "rank 1 has 12"});
}

TEST(DistributedSampler, ASeedThatNobodyAgreesIsRefused) {
  expect_error<InvalidArgument>([] { DistributedSampler(18, 3, 1, {.seed = 12}); },
                                {"seed 12", "3 replicas", "rank 1", "agree_seed"});
  // One replica, or nothing to shuffle: no seed can do harm.
  EXPECT_EQ(joined_sorted({DistributedSampler(5, 1, 0, {.seed = 12}).indices()}), up_to(5));
  EXPECT_EQ(DistributedSampler(4, 2, 1, {.shuffle = false, .seed = 12}).indices(), (Indices{1, 3}));
}

TEST(DistributedSampler, TheEpochDecidesTheOrder) {
  DistributedSampler sampler(40, 2, 1, {.seed = 3, .agree = as_given});
  const Indices zero = sampler.indices();
  sampler.set_epoch(1);
  const Indices one = sampler.indices();
  sampler.set_epoch(0);
  EXPECT_NE(zero, one);
  EXPECT_EQ(sampler.indices(), zero);
  // The sampler keeps the epoch, whoever asks.
  sampler.set_epoch(1);
  EXPECT_EQ(sampler.epoch(), 1);
  EXPECT_EQ(sampler.indices(), one);
  expect_error<InvalidArgument>([&sampler] { sampler.set_epoch(-1); }, {"-1"});
}

TEST(DistributedSampler, WarnsOnceAfterTheFirstRepeat) {
  const auto passes = [](DistributedSampler& sampler, int count) {
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < count; ++i) sampler.indices();
    return ::testing::internal::GetCapturedStderr();
  };
  DistributedSampler sampler(30, 3, 2);
  EXPECT_EQ(passes(sampler, 1), "");
  const std::string warning = passes(sampler, 1);
  EXPECT_NE(warning.find("set_epoch"), std::string::npos) << warning;
  EXPECT_NE(warning.find("rank 2"), std::string::npos) << warning;
  EXPECT_EQ(passes(sampler, 3), "");
  DistributedSampler good(30, 3, 2);
  for (int epoch = 0; epoch < 3; ++epoch) {
    good.set_epoch(epoch);
    EXPECT_EQ(passes(good, 1), "");
  }
  DistributedSampler in_order(30, 3, 2, {.shuffle = false});
  EXPECT_EQ(passes(in_order, 3), "");
}

TEST(DistributedSampler, RefusesBadArguments) {
  expect_error<InvalidArgument>([] { DistributedSampler(5, 0, 0); }, {"num_replicas is 0"});
  expect_error<InvalidArgument>([] { DistributedSampler(5, 2, 2); }, {"rank is 2", "[0, 2)"});
  expect_error<InvalidArgument>([] { DistributedSampler(5, 2, -1); }, {"rank is -1"});
  expect_error<InvalidArgument>([] { DistributedSampler(-5, 2, 0); }, {"-5"});
}

}  // namespace
}  // namespace ddp::data
