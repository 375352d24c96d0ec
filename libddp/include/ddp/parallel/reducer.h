#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "ddp/comm/process_group.h"

/// Keeps replicas equal: gradients are summed in buckets while backward is still running.
namespace ddp::parallel {

/// One gradient that the Reducer averages. Give `memory` when the caller owns it (copied in and out, counted);
/// leave it null to write into the bucket.
struct GradientSlot {
  std::string name;
  Dims sizes;
  DType dtype = DType::float32;
  Device device = Device::cpu();
  Dims strides = {};       ///< in elements; empty for row-major. Dense, non-overlapping
  void* memory = nullptr;
};

struct ReducerOptions {
  /// Bytes after which a bucket is closed: a threshold, the tensor that crosses it is still inside. One number,
  /// or a list used in order, the last one for all further buckets.
  std::vector<std::int64_t> bucket_cap_bytes = {25 << 20};
  /// Of the first bucket of each (dtype, device), so that communication starts early.
  std::int64_t first_bucket_bytes = 1 << 20;
  /// Recompute the plan in arrival order after the first backward, agreed by all ranks.
  bool rebuild = true;
  /// Lanes used in turn for the buckets.
  int lanes = 1;
  /// Called after memory of slots has moved (at construction and at a re-plan).
  std::function<void()> on_moved = {};
};

/// A bucket of the present plan.
struct BucketInfo {
  DType dtype = DType::float32;
  std::int64_t bytes = 0;
  std::vector<std::size_t> slots;  ///< in the order they lie in the bucket
};

/// Counted since construction.
struct ReducerCounters {
  std::uint64_t passes = 0;          ///< synchronised backward passes
  std::uint64_t collectives = 0;
  std::uint64_t bytes_reduced = 0;
  std::uint64_t bytes_copied = 0;    ///< between gradients and buckets
  std::uint64_t launched_before_last = 0;  ///< buckets launched before the last gradient of their pass was ready
  std::uint64_t rebuilds = 0;
  double exposed_ms = 0;             ///< host time spent waiting for sums after the last gradient
  double communication_ms = 0;       ///< sum of the buckets' collective times
};

/// Averages gradients over a group in buckets. The plan is the same on all ranks and collectives are launched
/// in its order whatever the order of arrival. Works with any tensor library: see GradientSlot.
///
/// `mark_ready` may be called from several threads; the other members from one thread at a time.
class Reducer {
 public:
  /// Collective over the group: compares names, sizes, strides, dtypes and order on all ranks and throws
  /// InvalidArgument on all of them at the first difference, with both sides and the ranks. Blocks the host.
  Reducer(std::shared_ptr<comm::ProcessGroup> group, std::vector<GradientSlot> slots, ReducerOptions options = {},
          std::source_location where = std::source_location::current());
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  std::size_t num_slots() const;
  /// The slot's place in its bucket, as a tensor of its sizes and strides. Moves only at a re-plan.
  Tensor gradient(std::size_t slot) const;
  void* gradient_data(std::size_t slot) const;

  /// Start of a backward pass. Carries out a pending re-plan (collective), unless `allow_rebuild` is false.
  /// `synchronize` false: this pass only adds up locally, nothing is sent.
  void prepare(bool synchronize = true);
  /// Gradient `slot` is complete, in order of `stream` (default: current stream of its device). Launches
  /// every bucket that the plan now allows. Throws ReductionError naming a slot that is marked twice.
  void mark_ready(std::size_t slot);
  void mark_ready(std::size_t slot, StreamView stream);
  /// The rest of the buckets goes out (slots never marked count as zero and set the status word), and
  /// `stream` waits for all sums. On CPU groups the host waits, and a missing gradient on any rank throws
  /// ReductionError on all ranks, naming parameters and ranks.
  void finish(std::source_location where = std::source_location::current());
  void finish_blocking(std::source_location where = std::source_location::current());
  /// True between prepare and finish.
  bool in_pass() const;
  /// Ends the pass without communication after an error elsewhere; never throws.
  void abandon() noexcept;

  std::vector<BucketInfo> plan() const;
  ReducerCounters counters() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddp::parallel
