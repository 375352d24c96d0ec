#pragma once

#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ddp/comm/work.h"
#include "ddp/parallel/reducer.h"
#include "parallel/bucket_plan.h"

namespace ddp::parallel {

/// One bucket: memory, and how far its present pass has come.
struct Bucket {
  Tensor memory;             // one dimension
  comm::Label label;         // "bucket 2: fc1.weight, fc1.bias"
  std::size_t expected = 0;  // gradients that come in a pass; the other slots are inactive
  std::size_t pending = 0;   // of them, still to come in this pass
  bool launched = false;
  comm::Work work;
  std::vector<StreamView> writers;  // the streams that wrote it in this pass
};

/// The memory of a plan: all buckets, and every slot's view of its place.
class BucketSet {
 public:
  static constexpr std::size_t kNoBucket = std::numeric_limits<std::size_t>::max();

  /// Zeroed memory. `slots` have their strides filled in (see `layout_strides`).
  BucketSet(BucketPlan plan, std::span<const GradientSlot> slots);

  const BucketPlan& plan() const { return plan_; }
  std::uint64_t plan_hash() const { return plan_hash_; }
  std::vector<Bucket>& buckets() { return buckets_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  /// kNoBucket for a slot without elements.
  std::size_t bucket_of(std::size_t slot) const { return bucket_of_[slot]; }
  const Tensor& view(std::size_t slot) const { return views_[slot]; }
  /// The status word at the end of the last bucket.
  const Tensor& status() const { return status_; }

 private:
  BucketPlan plan_;
  std::uint64_t plan_hash_ = 0;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;
  std::vector<Tensor> views_;
  Tensor status_;
};

/// The strides of a slot's view: its own where they are dense and do not overlap, else row-major.
Dims layout_strides(const Dims& sizes, const Dims& strides);

/// "what: a, b, c, d and 3 more".
std::string label_with_names(const std::string& what, const std::vector<std::string>& names);

}  // namespace ddp::parallel
