#include "parallel/status_word.h"

#include <gtest/gtest.h>

#include <limits>

#include "parallel/faults.h"

namespace {

using namespace ddp;
using namespace ddp::parallel;

// The words of several ranks, averaged in the dtype itself as backends do: the complete sum divided, or each number
// multiplied with the rounded reciprocal first. `ranks` stands for a group of `size` ranks, of which the others say
// nothing that adds up.
Tensor average(const std::vector<std::pair<int, Status>>& ranks, DType dtype, bool scale_first, int size) {
  const double reciprocal = full({1}, 1.0 / size, {dtype}).to_vector<double>()[0];
  Tensor sum = zeros({kStatusElements}, {dtype});
  for (const auto& [rank, status] : ranks) {
    Tensor word = empty({kStatusElements}, {dtype});
    write_status(word, status, rank);
    if (scale_first) word.mul_(reciprocal);
    sum.add_(word);
  }
  if (!scale_first) sum.mul_(1.0 / size);
  return sum;
}

// Both ways must say the same.
StatusSum sum_of(const std::vector<std::pair<int, Status>>& ranks, DType dtype, int size = 0) {
  if (size == 0) size = static_cast<int>(ranks.size());
  const StatusSum sum = read_status(average(ranks, dtype, false, size), size);
  EXPECT_EQ(sum, read_status(average(ranks, dtype, true, size), size));
  return sum;
}

class StatusWord : public testing::TestWithParam<DType> {};

TEST_P(StatusWord, HealthyWhenAllAgree) {
  std::vector<std::pair<int, Status>> ranks;
  for (int rank = 0; rank < 600; ++rank) ranks.push_back({rank, {.digest = 0xdeadbeefU}});
  EXPECT_TRUE(sum_of(ranks, GetParam()).healthy());
}

TEST_P(StatusWord, OneFaultAmongManySurvivesTheSum) {
  std::vector<std::pair<int, Status>> ranks;
  for (int rank = 0; rank < 600; ++rank) ranks.push_back({rank, {.fault = rank == 431, .digest = 77}});
  const StatusSum sum = sum_of(ranks, GetParam());
  EXPECT_TRUE(sum.fault);
  EXPECT_FALSE(sum.differs);
  EXPECT_FALSE(sum.healthy());
}

TEST_P(StatusWord, OneDifferentBitAmongManyIsSeen) {
  for (std::uint32_t bit = 0; bit < 32; ++bit) {
    std::vector<std::pair<int, Status>> ranks;
    for (int rank = 0; rank < 300; ++rank) {
      ranks.push_back({rank, {.digest = 0x0f0f3355U ^ (rank == 299 ? 1U << bit : 0U)}});
    }
    EXPECT_TRUE(sum_of(ranks, GetParam()).differs) << "bit " << bit;
  }
}

TEST_P(StatusWord, NamesTheOneRankThatGaveUp) {
  for (const int culprit : {0, 1, 15, 16, 127, 128, 4711, 65535}) {
    for (const int size : {2, 3, 5, 6, 7, 8, 11, 13, 48, 96, 127, 200, 1023, 10000}) {
      const StatusSum sum = sum_of({{3, {.digest = 1}}, {culprit, {.abandoned = true, .digest = 1}}}, GetParam(), size);
      ASSERT_EQ(sum.abandoned, 1) << size;
      ASSERT_EQ(sum.abandoned_rank, culprit) << size;
      ASSERT_FALSE(sum.differs) << size;
    }
    const StatusSum sum = sum_of({{3, {}}, {culprit, {.abandoned = true}}}, GetParam());
    EXPECT_NE(describe_abandoned(sum).find(concat("rank ", culprit, " left")), std::string::npos);
  }
  for (const int size : {2, 3, 7, 600}) {
    EXPECT_EQ(sum_of({{0, {.abandoned = true}}, {1, {.abandoned = true}}}, GetParam(), size).abandoned, 2);
  }
}

TEST_P(StatusWord, WhatNobodyWroteIsNotHealthy) {
  EXPECT_TRUE(read_status(zeros({kStatusElements}, {GetParam()}), 2).differs);
  EXPECT_FALSE(
      read_status(full({kStatusElements}, std::numeric_limits<double>::quiet_NaN(), {GetParam()}), 2).healthy());
}

INSTANTIATE_TEST_SUITE_P(Dtypes, StatusWord,
                         testing::Values(DType::float32, DType::float64, DType::float16, DType::bfloat16),
                         [](const auto& info) { return to_string(info.param); });

TEST(Faults, GroupsParametersByRanks) {
  std::vector<PassAccount> accounts(3);
  for (PassAccount& account : accounts) account.pass = 4;
  accounts[1].missing = {"fc2.weight", "fc2.bias"};
  accounts[2].missing = {"fc2.bias", "fc2.weight", "head"};
  const std::string text = describe(accounts);
  EXPECT_NE(text.find("'fc2.weight', 'fc2.bias' got no gradient on ranks 1, 2; 'head' got no gradient on rank 2"),
            std::string::npos)
      << text;
}

TEST(Faults, SaysWhichRanksFroze) {
  std::vector<PassAccount> accounts(2);
  accounts[0].inactive = {"b", "both"};
  accounts[1].inactive = {"both"};
  const std::string text = describe(accounts);
  EXPECT_NE(text.find("'b' is frozen (requires_grad false) on rank 0 and not on the others"), std::string::npos)
      << text;
  EXPECT_EQ(text.find("both"), std::string::npos) << text;
}

TEST(Faults, SaysWhenPassesAndPlansDiffer) {
  std::vector<PassAccount> accounts(2);
  accounts[0].pass = 3;
  accounts[1].pass = 5;
  accounts[1].plan_hash = 1;
  const std::string text = describe(accounts);
  EXPECT_NE(text.find("rank 0 is in synchronised pass 3 and rank 1 in pass 5"), std::string::npos) << text;
  EXPECT_NE(text.find("the bucket plans of rank 0 and rank 1 differ"), std::string::npos) << text;
}

}  // namespace
