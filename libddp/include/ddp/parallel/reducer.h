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

inline constexpr std::int64_t kDefaultBucketCapBytes = 25 << 20;
inline constexpr std::int64_t kDefaultFirstBucketBytes = 1 << 20;
/// For `first_bucket_bytes`: kDefaultFirstBucketBytes while `bucket_cap_bytes` is left at its default; caps
/// of one's own govern all buckets. PyTorch's rule.
inline constexpr std::int64_t kFirstBucketAuto = -1;

/// One gradient that the Reducer averages. Give `memory` when the caller owns it (copied in and out, counted);
/// leave it null to write into the bucket.
struct GradientSlot {
  std::string name;
  Dims sizes;
  DType dtype = DType::float32;
  Device device = Device::cpu();
  Dims strides = {};  ///< in elements; empty for row-major. Dense, non-overlapping
  void* memory = nullptr;
};

struct ReducerOptions {
  /// Bytes of gradients after which a bucket is closed: a threshold, the tensor that crosses it is still
  /// inside. One number, or a list used in order, the last one for all further buckets.
  std::vector<std::int64_t> bucket_cap_bytes = {kDefaultBucketCapBytes};
  /// Of the first bucket of each (dtype, device), so that communication starts early.
  std::int64_t first_bucket_bytes = kFirstBucketAuto;
  /// Recompute the plan in order of arrival after the first healthy pass, agreed by all ranks. Memory of
  /// slots moves then, once; see `on_moved`.
  bool rebuild = false;
  /// Lanes of the group used in turn for the buckets. They are lanes 1 to `lanes`, so that lane 0, the default
  /// of all calls, is left to the caller: its collectives may come between buckets in any order.
  int lanes = 1;
  /// Compare slots and options on all ranks at construction. Off: the caller vouches for them.
  bool check = true;
  /// A re-plan copies the buckets' contents to their new places. Off: `on_moved` sees to it.
  bool carry_contents = true;
  /// Called after memory of slots has moved (at a re-plan).
  std::function<void()> on_moved = {};
};

/// A bucket of the present plan.
struct BucketInfo {
  DType dtype = DType::float32;
  std::int64_t payload_bytes = 0;  ///< of the gradients
  std::int64_t bytes = 0;          ///< that are sent: with padding and, in the last bucket, the status word
  std::vector<std::size_t> slots;  ///< in the order they lie in the bucket
};

/// Counted since construction.
struct ReducerCounters {
  std::uint64_t passes = 0;  ///< synchronised backward passes
  std::uint64_t collectives = 0;
  std::uint64_t bytes_reduced = 0;
  std::uint64_t bytes_copied = 0;          ///< between gradients and buckets
  std::uint64_t launched_before_last = 0;  ///< buckets launched before the last gradient of their pass was ready
  std::uint64_t rebuilds = 0;
  /// Time spent waiting for sums after the last gradient: the host's on CPU groups. On CUDA groups the stream's,
  /// measured by events: a pass is in it once the device has passed its end.
  double exposed_ms = 0;
  /// Sum of the buckets' collective times. CPU groups only: on CUDA groups the recorded spans have the times.
  double communication_ms = 0;
};

/// Averages gradients over a group in buckets. The plan is the same on all ranks and collectives are launched
/// in its order whatever the order of arrival; the last bucket goes out in `finish`, since it carries the status
/// word of the whole pass. Works with any tensor library: see GradientSlot. With world size 1 there are no
/// buckets, nothing is sent or copied, and a missing gradient is no error.
///
/// `mark_ready` may be called from several threads; the other members from one thread at a time.
class Reducer {
 public:
  /// Collective over the group: compares names, sizes, strides, dtypes, order and options on all ranks and
  /// throws InvalidArgument on all of them at the first difference, with both sides and the ranks. Blocks the
  /// host.
  Reducer(std::shared_ptr<comm::ProcessGroup> group, std::vector<GradientSlot> slots, ReducerOptions options = {},
          std::source_location where = std::source_location::current());
  /// Abandons an open pass. Never blocks.
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  std::size_t num_slots() const;
  /// The slot's place in its bucket, as a tensor of its sizes and (where dense) strides. Moves only at a re-plan.
  Tensor gradient(std::size_t slot) const;
  void* gradient_data(std::size_t slot) const;

  /// Whether the slot takes part in the passes to come (at first all do). An inactive one is not waited for and
  /// not missing, its place in the bucket goes along as it is. Must be equal on all ranks: a difference makes
  /// `finish` throw ReductionError on all of them. Not within a pass.
  void set_active(std::size_t slot, bool active);

  /// Carries out a pending re-plan. Collective when one is pending, which is so on all ranks or on none; not
  /// within a pass. Blocks the host.
  void rebuild(std::source_location where = std::source_location::current());
  /// Start of a backward pass; a pending re-plan first, unless `allow_rebuild` is false. `synchronize` false:
  /// this pass only adds up locally, nothing is sent and nothing is moved.
  void prepare(bool synchronize = true, bool allow_rebuild = true,
               std::source_location where = std::source_location::current());
  /// Gradient `slot` is complete, in order of `stream` (default: current stream of its device), which must live until
  /// `finish`. Launches every bucket that the plan now allows: it begins after what the streams of its gradients have
  /// by then. A slot marked twice makes `finish` throw on all ranks.
  void mark_ready(std::size_t slot);
  void mark_ready(std::size_t slot, StreamView stream);
  /// The same for a gradient that lies elsewhere: it is copied into the bucket now, and `finish` copies the
  /// mean back into it (both counted). After an error it is unchanged.
  void mark_ready(std::size_t slot, const Tensor& gradient);
  /// The rest of the buckets goes out (slots never marked count as zero and set the status word), and the
  /// current stream waits for all sums, and every stream that gradients were marked ready on. A fault is on any rank a
  /// gradient missing or ready twice, active slots, plans or passes that differ, a rank that gave up.
  ///
  /// On CPU groups the host waits, and a fault throws ReductionError on all ranks, naming parameters and ranks; what
  /// lies in the buckets is then of no use and memory of the caller is unchanged. The pass is over in any case and the
  /// next one may begin.
  ///
  /// On CUDA groups the host does not wait. After a fault the device refuses the updates of libddp's optimisers, on
  /// all ranks; the rank at fault throws here, the others as soon as they see it: in a later `poll`, `prepare`,
  /// `finish`, `rebuild` or `verify`, with the same text. The rank at fault waits for them. For an optimiser of your
  /// own use `finish_blocking` (memory of the caller may hold sums of no use otherwise).
  void finish(std::source_location where = std::source_location::current());
  /// On any device as `finish` on CPU groups: blocks the host and throws on all ranks.
  void finish_blocking(std::source_location where = std::source_location::current());
  /// Throws ReductionError when it is known already that a pass has failed. Blocks only then.
  void poll(std::source_location where = std::source_location::current());
  /// Blocks the host until it is known of every pass so far that it was good, or throws ReductionError. After the last
  /// step on a CUDA group, and before its result is kept. Not within a pass.
  void verify(std::source_location where = std::source_location::current());
  /// True between prepare and finish.
  bool in_pass() const;
  /// Gives the pass up after an error elsewhere, and tells the peers: what is left of the plan goes out with
  /// the status word set, so that their `finish` throws ReductionError naming this rank. Neither blocks nor
  /// throws; nothing happens outside a pass.
  void abandon() noexcept;

  std::vector<BucketInfo> plan() const;
  ReducerCounters counters() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddp::parallel
