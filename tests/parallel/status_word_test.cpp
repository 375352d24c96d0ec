#include "parallel/status_word.h"

#include <gtest/gtest.h>

#include "parallel/faults.h"

namespace {

using namespace ddp;
using namespace ddp::parallel;

// Adds the words of several ranks one after the other in the dtype itself, as a backend does.
StatusSum sum_of(const std::vector<std::pair<int, Status>>& ranks, DType dtype) {
  Tensor sum = zeros({kStatusElements}, {dtype});
  for (const auto& [rank, status] : ranks) {
    const Tensor word = empty({kStatusElements}, {dtype});
    write_status(word, status, rank);
    sum.add_(word);
  }
  return read_status(sum);
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
  for (const int culprit : {0, 1, 127, 128, 4711}) {
    std::vector<std::pair<int, Status>> ranks = {{3, {.digest = 1}}, {culprit, {.abandoned = true, .digest = 1}}};
    const StatusSum sum = sum_of(ranks, GetParam());
    EXPECT_EQ(sum.abandoned, 1);
    EXPECT_EQ(sum.abandoned_rank, culprit);
    EXPECT_NE(describe_abandoned(sum).find(concat("rank ", culprit, " left")), std::string::npos);
  }
  EXPECT_EQ(sum_of({{0, {.abandoned = true}}, {1, {.abandoned = true}}}, GetParam()).abandoned, 2);
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
