#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddp/parallel/reducer.h"
#include "ddp/trace/recorder.h"
#include "parallel/bucket_set.h"
#include "parallel/exposed_time.h"
#include "parallel/faults.h"
#include "parallel/rebuild.h"
#include "parallel/side_channel.h"
#include "parallel/verdicts.h"

namespace ddp::parallel {

class Reducer::Impl {
 public:
  Impl(std::shared_ptr<comm::ProcessGroup> group, std::vector<GradientSlot> slots, ReducerOptions options,
       std::source_location where);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const Tensor& view(std::size_t slot) const { return alone() ? own_[checked(slot)] : set_->view(checked(slot)); }
  std::size_t num_slots() const { return slots_.size(); }
  void set_active(std::size_t slot, bool active);
  void rebuild(std::source_location where);
  void prepare(bool synchronize, bool allow_rebuild, std::source_location where);
  void mark_ready(std::size_t slot, StreamView stream, const Tensor& source);
  void finish(bool blocking, std::source_location where);
  void poll(std::source_location where);
  void verify(std::source_location where);
  void abandon() noexcept;
  bool in_pass() const;
  std::vector<BucketInfo> plan() const;
  ReducerCounters counters() const;
  Device device() const { return group_->device(); }

 private:
  static constexpr int kFirstLane = 1;  // lane 0 is the caller's

  bool alone() const { return group_->size() == 1; }
  std::size_t checked(std::size_t slot) const {
    DDP_CHECK(slot < slots_.size(), InvalidArgument, "slot ", slot, " of ", slots_.size());
    return slot;
  }
  bool expected(std::size_t slot) const { return active_[slot] && set_->bucket_of(slot) != BucketSet::kNoBucket; }
  int lane_of(std::size_t bucket) const { return kFirstLane + static_cast<int>(bucket % lanes_); }
  bool faulty() const { return !missing_.empty() || !twice_.empty() || !unexpected_.empty(); }

  // reducer.cpp
  void make_room(BucketPlan plan, std::source_location where);
  void settle(std::source_location where);
  void start_buckets();
  void count_expected();
  void written(Bucket& bucket, StreamView stream);
  StreamView writers_in_order(Bucket& bucket);
  void note_full(std::size_t index);
  void launch(std::size_t index);
  void launch_ready();
  void launch_rest();
  void zero_missing();
  void count_copied(std::int64_t bytes) {
    counters_.bytes_copied += static_cast<std::uint64_t>(bytes);
    trace::count(trace::Counter::gradient_bytes_copied, bytes);
  }
  std::uint32_t digest() const;

  // reducer_finish.cpp
  StatusSum wait_for_sums(std::source_location where);
  void order_sums(std::source_location where);
  void copy_out();
  PassAccount account(std::uint32_t pass) const;
  void take(const Verdicts::Verdict& verdict, std::source_location where);
  void throw_if_group_failed(std::source_location where);
  std::string meet(std::uint32_t pass, std::chrono::milliseconds patience, std::source_location where);
  void meet_when_due(std::source_location where);
  void catch_up(std::uint64_t latest, std::source_location where);

  const std::shared_ptr<comm::ProcessGroup> group_;
  std::vector<GradientSlot> slots_;
  const ReducerOptions options_;
  const std::size_t lanes_;
  std::vector<std::int64_t> caps_;
  std::optional<BucketSet> set_;
  std::vector<Tensor> foreign_;  // caller-owned memory of slots, undefined for the others
  std::vector<Tensor> own_;      // world size 1 only
  std::vector<bool> active_;
  bool counted_ = false;  // `expected` of the buckets and `active_hash_` are those of `active_`
  std::uint64_t active_hash_ = 0;
  ArrivalOrder arrival_;
  ReducerCounters counters_;

  // --- CUDA groups only ---
  std::optional<Verdicts> verdicts_;
  std::optional<SideChannel> side_channel_;
  bool in_process_ = false;      // a group without a store
  std::optional<Stream> joint_;  // where a bucket is launched that several streams have written
  mutable std::optional<ExposedTime> exposed_;
  mutable double exposed_collected_ms_ = 0;
  std::vector<StreamView> streams_;  // that have written in this pass
  comm::Work last_sum_;              // of the latest pass
  std::optional<StreamView> judged_on_;
  std::uint32_t settled_ = 0;  // passes up to here have been judged, and thrown about
  std::uint32_t refused_ = 0;  // the latest pass of which the gradients were of no use
  bool meeting_due_ = false;   // a rank gave up: the ranks meet before the next pass

  mutable std::mutex mutex_;
  // --- of the present pass, under the mutex ---
  bool open_ = false;
  bool synchronize_ = false;
  std::uint32_t pass_ = 0;  // counts passes that send
  std::vector<bool> ready_;
  std::vector<std::pair<std::size_t, Tensor>> copied_in_;  // slot, where the mean goes back to
  std::size_t next_ = 0;                                   // bucket that is launched next
  std::size_t awaited_ = 0;                                // gradients still to come
  std::vector<std::size_t> missing_, twice_, unexpected_;
  Status status_;  // what this rank says in it
};

}  // namespace ddp::parallel
