#include "parallel/bucket_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ddp/core/error.h"
#include "ddp/parallel/reducer.h"

namespace {

using namespace ddp;
using namespace ddp::parallel;
using Caps = std::vector<std::int64_t>;
using Slots = std::vector<PlanSlot>;
using Order = std::vector<std::size_t>;

constexpr std::int64_t kStatus = 16;

std::vector<Order> slots_of(const BucketPlan& plan) {
  std::vector<Order> out;
  for (const PlannedBucket& bucket : plan.buckets) out.push_back(bucket.slots);
  return out;
}

template <class F>
std::string error_of(F&& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return {};
}

TEST(BucketPlan, LastRegisteredFirstAndCapIsAThreshold) {
  // float32: 40, 40, 40, 4000, 40 bytes; a bucket is closed by the tensor that reaches 80 bytes.
  const Slots slots = {{10}, {10}, {10}, {1000}, {10}};
  const BucketPlan plan = plan_buckets(slots, reverse_order(5), Caps{80}, kStatus);
  EXPECT_EQ(slots_of(plan), (std::vector<Order>{{4, 3}, {2, 1}, {0}}));
  EXPECT_EQ(plan.buckets[0].payload_bytes, 4040);
  EXPECT_EQ(plan.buckets[1].payload_bytes, 80);
  EXPECT_EQ(plan.buckets[2].payload_bytes, 40);
}

TEST(BucketPlan, CapOfOneByteGivesOneBucketEachAndHugeCapOne) {
  const Slots slots = {{3}, {4}, {5}};
  EXPECT_EQ(slots_of(plan_buckets(slots, reverse_order(3), Caps{1}, kStatus)), (std::vector<Order>{{2}, {1}, {0}}));
  EXPECT_EQ(slots_of(plan_buckets(slots, reverse_order(3), Caps{1 << 30}, kStatus)), (std::vector<Order>{{2, 1, 0}}));
}

TEST(BucketPlan, ListOfCapsIsUsedInOrderAndTheLastAgain) {
  const Slots slots(10, PlanSlot{4});  // 16 bytes each
  const BucketPlan plan = plan_buckets(slots, reverse_order(10), Caps{16, 32, 48}, kStatus);
  EXPECT_EQ(slots_of(plan), (std::vector<Order>{{9}, {8, 7}, {6, 5, 4}, {3, 2, 1}, {0}}));
}

TEST(BucketPlan, EachDtypeAndDeviceWalksItsOwnCaps) {
  const Slots slots = {{4}, {2, DType::float64}, {4}, {2, DType::float64}, {4, DType::float32, Device::cpu(1)}, {4}};
  const BucketPlan plan = plan_buckets(slots, reverse_order(6), Caps{16, 1 << 20}, kStatus);
  // First bucket of 16 bytes for each of the three keys; buckets in order of when they become full.
  EXPECT_EQ(slots_of(plan), (std::vector<Order>{{5}, {4}, {3}, {1}, {2, 0}}));
  EXPECT_EQ(plan.buckets[1].device, Device::cpu(1));
  EXPECT_EQ(plan.buckets[2].dtype, DType::float64);
}

TEST(BucketPlan, OrderOfBucketsIsByTheLastSlot) {
  // The float64 bucket opens first but is full last.
  const Slots slots = {{8, DType::float64}, {8}, {8}, {8, DType::float64}};
  EXPECT_EQ(slots_of(plan_buckets(slots, Order{3, 2, 1, 0}, Caps{1 << 20}, kStatus)),
            (std::vector<Order>{{2, 1}, {3, 0}}));
}

TEST(BucketPlan, FollowsTheOrderGiven) {
  const Slots slots = {{4}, {4}, {4}, {4}};
  EXPECT_EQ(slots_of(plan_buckets(slots, Order{2, 0, 3, 1}, Caps{32}, kStatus)), (std::vector<Order>{{2, 0}, {3, 1}}));
}

TEST(BucketPlan, SlotsWithoutElementsAreNowhere) {
  const Slots slots = {{0}, {4}, {0, DType::float64}, {0}};
  const BucketPlan plan = plan_buckets(slots, reverse_order(4), Caps{1}, kStatus);
  EXPECT_EQ(slots_of(plan), (std::vector<Order>{{1}}));
  EXPECT_TRUE(plan_buckets(Slots{{0}, {0}}, reverse_order(2), Caps{1}, kStatus).buckets.empty());
  EXPECT_TRUE(plan_buckets(Slots{}, Order{}, Caps{1}, kStatus).buckets.empty());
}

TEST(BucketPlan, OversizeTensorSitsAloneWhenItOpensTheBucket) {
  // 0-d, bfloat16 [4], float64 [2], float32 [256] with a cap of 64 bytes.
  const Slots slots = {{0}, {1}, {4, DType::bfloat16}, {2, DType::float64}, {256}};
  const BucketPlan plan = plan_buckets(slots, reverse_order(5), Caps{64}, kStatus);
  EXPECT_EQ(slots_of(plan), (std::vector<Order>{{4}, {3}, {2}, {1}}));
}

TEST(BucketPlan, SlotsAreAlignedAndStatusEndsTheLastBucket) {
  const Slots slots = {{3}, {17}, {5}, {16}};
  const BucketPlan plan = plan_buckets(slots, reverse_order(4), Caps{1 << 20}, 68);
  ASSERT_EQ(plan.buckets.size(), 1U);
  EXPECT_EQ(plan.buckets[0].offsets, (std::vector<std::int64_t>{0, 16, 32, 64}));  // of 16, 5, 17, 3 elements
  EXPECT_EQ(plan.status_offset, 80);
  EXPECT_EQ(plan.buckets[0].elements, 160);  // 80 + 68, rounded up to 16

  const BucketPlan halves =
      plan_buckets(Slots{{3, DType::float16}, {33, DType::float16}}, reverse_order(2), Caps{1}, 68);
  EXPECT_EQ(halves.buckets[0].elements, 64);
  EXPECT_EQ(halves.status_offset, 32);
  EXPECT_EQ(halves.buckets[1].elements, 128);  // 32 + 68 halves, rounded up to 32
}

TEST(BucketPlan, EveryElementIsPlannedOnceForRandomSlots) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Slots slots(1 + random() % 40);
    for (PlanSlot& slot : slots) {
      slot.numel = static_cast<std::int64_t>(random() % 300) * static_cast<std::int64_t>(random() % 5 != 0);
      slot.dtype = random() % 2 == 0 ? DType::float32 : DType::float64;
    }
    Order order = reverse_order(slots.size());
    std::shuffle(order.begin(), order.end(), random);
    const Caps caps = {static_cast<std::int64_t>(1 + random() % 2000), static_cast<std::int64_t>(1 + random() % 4000)};
    const BucketPlan plan = plan_buckets(slots, order, caps, kStatus);
    std::vector<int> seen(slots.size(), 0);
    for (const PlannedBucket& bucket : plan.buckets) {
      std::int64_t end = 0;
      std::int64_t payload = 0;
      for (std::size_t k = 0; k < bucket.slots.size(); ++k) {
        const PlanSlot& slot = slots[bucket.slots[k]];
        ++seen[bucket.slots[k]];
        EXPECT_EQ(slot.dtype, bucket.dtype);
        EXPECT_GE(bucket.offsets[k], end);
        EXPECT_EQ(bucket.offsets[k] * static_cast<std::int64_t>(size_of(slot.dtype)) % kSlotAlignment, 0);
        end = bucket.offsets[k] + slot.numel;
        payload += slot.numel * static_cast<std::int64_t>(size_of(slot.dtype));
      }
      EXPECT_LE(end, bucket.elements);
      EXPECT_EQ(payload, bucket.payload_bytes);
    }
    for (std::size_t i = 0; i < slots.size(); ++i) EXPECT_EQ(seen[i], slots[i].numel > 0 ? 1 : 0);
    EXPECT_EQ(plan, plan_buckets(slots, order, caps, kStatus));
    EXPECT_EQ(hash(plan), hash(plan_buckets(slots, order, caps, kStatus)));
  }
}

TEST(BucketPlan, HashTellsPlansApart) {
  const Slots slots = {{4}, {4}, {8}};
  const std::uint64_t base = hash(plan_buckets(slots, Order{2, 1, 0}, Caps{1 << 20}, kStatus));
  EXPECT_NE(base, hash(plan_buckets(slots, Order{2, 0, 1}, Caps{1 << 20}, kStatus)));
  EXPECT_NE(base, hash(plan_buckets(slots, Order{2, 1, 0}, Caps{32}, kStatus)));
  EXPECT_NE(base, hash(plan_buckets(Slots{{4}, {4}, {8, DType::float64}}, Order{2, 1, 0}, Caps{1 << 20}, kStatus)));
}

TEST(BucketPlan, OrderMustBeAPermutation) {
  const Slots slots = {{4}, {4}};
  EXPECT_NE(error_of([&] { plan_buckets(slots, Order{0}, Caps{1}, kStatus); }).find("1 entries for 2 slots"),
            std::string::npos);
  EXPECT_NE(error_of([&] { plan_buckets(slots, Order{1, 1}, Caps{1}, kStatus); }).find("entry 1 is 1"),
            std::string::npos);
  EXPECT_NE(error_of([&] { plan_buckets(slots, Order{1, 2}, Caps{1}, kStatus); }).find("entry 1 is 2"),
            std::string::npos);
}

TEST(CapSequence, SmallFirstBucketOnlyWhileTheCapIsTheDefault) {
  EXPECT_EQ(cap_sequence(Caps{kDefaultBucketCapBytes}, kFirstBucketAuto), (Caps{1 << 20, 25 << 20}));
  EXPECT_EQ(cap_sequence(Caps{4 << 20}, kFirstBucketAuto), (Caps{4 << 20}));
  EXPECT_EQ(cap_sequence(Caps{5, 6}, kFirstBucketAuto), (Caps{5, 6}));
  EXPECT_EQ(cap_sequence(Caps{4 << 20}, 2 << 20), (Caps{2 << 20, 4 << 20}));
}

TEST(CapSequence, RefusesWhatIsNoCap) {
  EXPECT_NE(error_of([] { cap_sequence(Caps{}, kFirstBucketAuto); }).find("empty list"), std::string::npos);
  EXPECT_NE(error_of([] { cap_sequence(Caps{8, -3}, kFirstBucketAuto); }).find("-3"), std::string::npos);
  EXPECT_NE(error_of([] { cap_sequence(Caps{8}, 0); }).find("first_bucket_bytes is 0"), std::string::npos);
}

}  // namespace
