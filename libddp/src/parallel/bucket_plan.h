#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ddp/core/device.h"
#include "ddp/core/dtype.h"

/// Which gradients travel together, and where each lies. Pure functions: equal arguments give equal plans,
/// so ranks that agree on the arguments agree on the plan.
namespace ddp::parallel {

/// Every slot begins at a multiple of this many bytes in its bucket, so that vector loads and the GEMMs that
/// write it see the alignment of memory of its own. The padding is zero, is sent, and is counted.
inline constexpr std::int64_t kSlotAlignment = 64;

struct PlanSlot {
  std::int64_t numel = 0;
  DType dtype = DType::float32;
  Device device = Device::cpu();
  friend bool operator==(const PlanSlot&, const PlanSlot&) = default;
};

struct PlannedBucket {
  DType dtype = DType::float32;
  Device device = Device::cpu();
  std::vector<std::size_t> slots;     // in the order in which they lie
  std::vector<std::int64_t> offsets;  // of each of them, in elements
  std::int64_t payload_bytes = 0;     // of the gradients alone: what caps are compared with
  std::int64_t elements = 0;          // with padding and, in the last bucket, the status word
  friend bool operator==(const PlannedBucket&, const PlannedBucket&) = default;
};

struct BucketPlan {
  std::vector<PlannedBucket> buckets;  // in the order of their collectives
  std::int64_t status_offset = 0;      // of the status word in the last bucket, in elements
  friend bool operator==(const BucketPlan&, const BucketPlan&) = default;
};

/// The caps that buckets of one (dtype, device) take one after the other, the last one again and again.
/// `first_bucket_bytes` negative: `default_first_bytes` when `caps` is the default, else no first bucket of its
/// own. Throws InvalidArgument that quotes a cap below 1, or an empty list.
std::vector<std::int64_t> cap_sequence(std::span<const std::int64_t> caps, std::int64_t first_bucket_bytes);

/// Slots go into buckets in `order` (a permutation of all slots, expected order of arrival), one open bucket
/// per (dtype, device). A bucket is closed once its bytes reach its cap: the cap is a threshold, tensors are
/// never split. Slots without elements are in no bucket. Buckets are ordered by the place in `order` of their
/// last slot, which is when they become full. `status_elements` are added to the last one.
BucketPlan plan_buckets(std::span<const PlanSlot> slots, std::span<const std::size_t> order,
                        std::span<const std::int64_t> caps, std::int64_t status_elements);

/// n-1, ..., 1, 0: how gradients arrive when modules are registered in the order in which they run.
std::vector<std::size_t> reverse_order(std::size_t n);

/// A number that differs, as good as always, when plans differ.
std::uint64_t hash(const BucketPlan& plan);

}  // namespace ddp::parallel
