#include "parallel/bucket_set.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "parallel/status_word.h"
#include "tensor/tensor_impl.h"

namespace ddp::parallel {

BucketSet::BucketSet(BucketPlan plan, std::span<const GradientSlot> slots)
    : plan_(std::move(plan)), plan_hash_(hash(plan_)), bucket_of_(slots.size(), kNoBucket), views_(slots.size()) {
  buckets_.resize(plan_.buckets.size());
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const PlannedBucket& planned = plan_.buckets[i];
    Bucket& bucket = buckets_[i];
    bucket.memory = zeros({planned.elements}, {planned.dtype, planned.device});
    std::vector<std::string> names;
    for (std::size_t k = 0; k < planned.slots.size(); ++k) {
      const std::size_t slot = planned.slots[k];
      bucket_of_[slot] = i;
      views_[slot] = make_view(bucket.memory, slots[slot].sizes, slots[slot].strides, planned.offsets[k]);
      names.push_back(slots[slot].name);
    }
    bucket.label = label_with_names(concat("bucket ", i), names);
  }
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    if (bucket_of_[slot] == kNoBucket) views_[slot] = empty(slots[slot].sizes, {slots[slot].dtype, slots[slot].device});
  }
  if (!buckets_.empty()) {
    status_ = make_view(buckets_.back().memory, {kStatusElements}, {1}, plan_.status_offset);
  }
}

Dims layout_strides(const Dims& sizes, const Dims& strides) {
  if (strides.size() != sizes.size() || sizes.product() == 0) return contiguous_strides(sizes);
  std::array<std::size_t, Dims::kMaxRank> dims{};
  const auto end = dims.begin() + static_cast<std::ptrdiff_t>(sizes.size());
  std::iota(dims.begin(), end, std::size_t{0});
  std::sort(dims.begin(), end, [&](std::size_t a, std::size_t b) { return strides[a] < strides[b]; });
  std::int64_t expected = 1;
  for (auto dim = dims.begin(); dim != end; ++dim) {
    if (sizes[*dim] == 1) continue;
    if (strides[*dim] != expected) return contiguous_strides(sizes);
    expected *= sizes[*dim];
  }
  return strides;
}

std::string label_with_names(const std::string& what, const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 4;
  std::string text = what + ":";
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) text += concat(i == 0 ? " " : ", ", names[i]);
  if (names.size() > kShown) text += concat(" and ", names.size() - kShown, " more");
  return text;
}

}  // namespace ddp::parallel
