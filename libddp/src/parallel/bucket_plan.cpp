#include "parallel/bucket_plan.h"

#include <algorithm>
#include <numeric>

#include "ddp/core/error.h"
#include "ddp/parallel/reducer.h"
#include "parallel/hash.h"

namespace ddp::parallel {
namespace {

// One bucket that still takes slots, with the position in the order of its newest slot.
struct OpenBucket {
  PlannedBucket bucket;
  std::size_t last_position = 0;
  std::size_t closed_before = 0;  // buckets of this (dtype, device) so far
};

std::int64_t aligned(std::int64_t elements, DType dtype) {
  const std::int64_t step = kSlotAlignment / static_cast<std::int64_t>(size_of(dtype));
  return (elements + step - 1) / step * step;
}

}  // namespace

std::vector<std::int64_t> cap_sequence(std::span<const std::int64_t> caps, std::int64_t first_bucket_bytes) {
  DDP_CHECK(!caps.empty(), InvalidArgument, "bucket_cap_bytes is an empty list; give one number or several");
  for (const std::int64_t cap : caps) {
    DDP_CHECK(cap >= 1, InvalidArgument, "bucket_cap_bytes has ", cap, "; each cap is at least 1 byte");
  }
  DDP_CHECK(first_bucket_bytes != 0, InvalidArgument,
            "first_bucket_bytes is 0; it is at least 1 byte, or kFirstBucketAuto");
  std::vector<std::int64_t> sequence(caps.begin(), caps.end());
  const bool is_default = caps.size() == 1 && caps[0] == kDefaultBucketCapBytes;
  if (first_bucket_bytes > 0) {
    sequence.insert(sequence.begin(), first_bucket_bytes);
  } else if (is_default) {
    sequence.insert(sequence.begin(), kDefaultFirstBucketBytes);
  }
  return sequence;
}

BucketPlan plan_buckets(std::span<const PlanSlot> slots, std::span<const std::size_t> order,
                        std::span<const std::int64_t> caps, std::int64_t status_elements) {
  std::vector<bool> seen(slots.size(), false);
  DDP_CHECK(order.size() == slots.size(), InvalidArgument, "the order has ", order.size(), " entries for ",
            slots.size(), " slots");
  std::vector<OpenBucket> open;
  std::vector<OpenBucket> closed;
  for (std::size_t position = 0; position < order.size(); ++position) {
    const std::size_t index = order[position];
    DDP_CHECK(index < slots.size() && !seen[index], InvalidArgument, "the order is not a permutation: entry ", position,
              " is ", index, " of ", slots.size(), " slots");
    seen[index] = true;
    const PlanSlot& slot = slots[index];
    if (slot.numel == 0) continue;
    auto at = std::find_if(open.begin(), open.end(), [&](const OpenBucket& candidate) {
      return candidate.bucket.dtype == slot.dtype && candidate.bucket.device == slot.device;
    });
    if (at == open.end()) at = open.insert(open.end(), OpenBucket{{slot.dtype, slot.device, {}, {}, 0, 0}, 0, 0});
    PlannedBucket& bucket = at->bucket;
    bucket.slots.push_back(index);
    bucket.offsets.push_back(bucket.elements);
    bucket.elements = aligned(bucket.elements + slot.numel, slot.dtype);
    bucket.payload_bytes += slot.numel * static_cast<std::int64_t>(size_of(slot.dtype));
    at->last_position = position;
    if (bucket.payload_bytes >= caps[std::min(at->closed_before, caps.size() - 1)]) {
      closed.push_back(*at);
      *at = OpenBucket{{slot.dtype, slot.device, {}, {}, 0, 0}, 0, at->closed_before + 1};
    }
  }
  for (OpenBucket& rest : open) {
    if (!rest.bucket.slots.empty()) closed.push_back(std::move(rest));
  }
  std::sort(closed.begin(), closed.end(),
            [](const OpenBucket& a, const OpenBucket& b) { return a.last_position < b.last_position; });

  BucketPlan plan;
  for (OpenBucket& bucket : closed) plan.buckets.push_back(std::move(bucket.bucket));
  if (!plan.buckets.empty()) {
    PlannedBucket& last = plan.buckets.back();
    plan.status_offset = last.elements;
    last.elements = aligned(last.elements + status_elements, last.dtype);
  }
  return plan;
}

std::vector<std::size_t> reverse_order(std::size_t n) {
  std::vector<std::size_t> order(n);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

std::uint64_t hash(const BucketPlan& plan) {
  Hash hash;
  hash.add(plan.buckets.size());
  for (const PlannedBucket& bucket : plan.buckets) {
    hash.add(static_cast<std::uint64_t>(bucket.dtype));
    hash.add(static_cast<std::uint64_t>(bucket.elements));
    hash.add(bucket.slots.size());
    for (std::size_t i = 0; i < bucket.slots.size(); ++i) {
      hash.add(bucket.slots[i]);
      hash.add(static_cast<std::uint64_t>(bucket.offsets[i]));
    }
  }
  return hash.value();
}

}  // namespace ddp::parallel
