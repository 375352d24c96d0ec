#include "ddp/parallel/reducer.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "ddp/trace/recorder.h"
#include "parallel/average.h"
#include "parallel/bucket_set.h"
#include "parallel/faults.h"
#include "parallel/hash.h"
#include "parallel/rebuild.h"
#include "parallel/slot_check.h"
#include "parallel/start_check.h"
#include "parallel/status_word.h"

namespace ddp::parallel {
namespace {

constexpr int kFirstLane = 1;  // lane 0 is the caller's

std::vector<PlanSlot> plan_slots(std::span<const GradientSlot> slots) {
  std::vector<PlanSlot> out;
  out.reserve(slots.size());
  for (const GradientSlot& slot : slots) out.push_back({slot.sizes.product(), slot.dtype, slot.device});
  return out;
}

}  // namespace

class Reducer::Impl {
 public:
  Impl(std::shared_ptr<comm::ProcessGroup> group, std::vector<GradientSlot> slots, ReducerOptions options,
       std::source_location where);

  const Tensor& view(std::size_t slot) const { return alone() ? own_[checked(slot)] : set_->view(checked(slot)); }
  std::size_t num_slots() const { return slots_.size(); }
  void set_active(std::size_t slot, bool active);
  void rebuild(std::source_location where);
  void prepare(bool synchronize, bool allow_rebuild, std::source_location where);
  void mark_ready(std::size_t slot, StreamView stream, const Tensor& source);
  void finish(bool blocking, std::source_location where);
  void abandon() noexcept;
  bool in_pass() const;
  std::vector<BucketInfo> plan() const;
  ReducerCounters counters() const;
  Device device() const { return group_->device(); }

 private:
  bool alone() const { return group_->size() == 1; }
  std::size_t checked(std::size_t slot) const {
    DDP_CHECK(slot < slots_.size(), InvalidArgument, "slot ", slot, " of ", slots_.size());
    return slot;
  }
  bool expected(std::size_t slot) const { return active_[slot] && set_->bucket_of(slot) != BucketSet::kNoBucket; }
  comm::CollectiveOptions lane_options(std::size_t bucket, std::string label) const {
    return {.label = std::move(label), .lane = kFirstLane + static_cast<int>(bucket % lanes_)};
  }
  void settle(std::source_location where);
  void start_buckets();
  void launch(std::size_t index);
  void launch_ready();
  void launch_rest(bool abandoned);
  void zero_missing();
  StatusSum wait_for_sums(bool blocking, std::source_location where);
  void copy_out(const std::vector<Tensor>& copied_in);
  void count_copied(std::int64_t bytes) {
    counters_.bytes_copied += static_cast<std::uint64_t>(bytes);
    trace::count(trace::Counter::gradient_bytes_copied, bytes);
  }
  std::uint32_t digest() const;
  PassAccount account() const;

  const std::shared_ptr<comm::ProcessGroup> group_;
  std::vector<GradientSlot> slots_;
  const ReducerOptions options_;
  const std::size_t lanes_;
  std::vector<std::int64_t> caps_;
  std::optional<BucketSet> set_;
  std::vector<Tensor> foreign_;  // caller-owned memory of slots, undefined for the others
  std::vector<Tensor> own_;      // world size 1 only
  std::vector<bool> active_;
  ArrivalOrder arrival_;
  ReducerCounters counters_;

  mutable std::mutex mutex_;
  // --- of the present pass, under the mutex ---
  bool open_ = false;
  bool synchronize_ = false;
  std::vector<bool> ready_;
  std::vector<Tensor> copied_in_;  // by slot: where the mean goes back to
  std::size_t next_ = 0;           // bucket that is launched next
  std::size_t awaited_ = 0;        // gradients still to come
  std::vector<std::size_t> missing_, twice_, unexpected_;
  bool abandoned_ = false;
};

Reducer::Impl::Impl(std::shared_ptr<comm::ProcessGroup> group, std::vector<GradientSlot> slots, ReducerOptions options,
                    std::source_location where)
    : group_(std::move(group)),
      slots_(std::move(slots)),
      options_(std::move(options)),
      lanes_(static_cast<std::size_t>(std::max(options_.lanes, 1))),
      foreign_(slots_.size()),
      active_(slots_.size(), true),
      arrival_(options_.rebuild) {
  const std::string refused = refusal(*group_, slots_, options_);
  if (options_.check && !alone()) check_same_on_all_ranks(*group_, describe_slots(*group_, slots_, options_), where);
  DDP_CHECK(refused.empty(), InvalidArgument, "Reducer: ", refused);
  caps_ = cap_sequence(options_.bucket_cap_bytes, options_.first_bucket_bytes);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    GradientSlot& slot = slots_[i];
    if (slot.memory != nullptr) {
      foreign_[i] = from_blob(slot.memory, slot.sizes, {slot.dtype, slot.device}, slot.strides);
    }
    slot.strides = layout_strides(slot.sizes, slot.strides);
  }
  if (alone()) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      own_.push_back(foreign_[i].defined() ? foreign_[i] : zeros(slots_[i].sizes, {slots_[i].dtype, slots_[i].device}));
    }
    return;
  }
  group_->ensure_lanes(kFirstLane + static_cast<int>(lanes_));
  set_.emplace(plan_buckets(plan_slots(slots_), reverse_order(slots_.size()), caps_, kStatusElements), slots_);
}

void Reducer::Impl::set_active(std::size_t slot, bool active) {
  const std::scoped_lock lock(mutex_);
  DDP_CHECK(!open_, InvalidArgument, "set_active within a pass, slot '", slots_[checked(slot)].name, "'");
  active_[checked(slot)] = active;
}

// Collectives of a pass that was given up may still be writing the buckets.
void Reducer::Impl::settle(std::source_location where) {
  if (!set_) return;
  for (Bucket& bucket : set_->buckets()) std::exchange(bucket.work, {}).wait(where);
}

void Reducer::Impl::rebuild(std::source_location where) {
  {
    const std::scoped_lock lock(mutex_);
    DDP_CHECK(!open_, InvalidArgument, "rebuild within a pass");
    if (!arrival_.pending()) return;
  }
  settle(where);
  const std::vector<std::size_t> order =
      arrival_.agree(*group_, slots_.size(), lane_options(0, "bucket re-plan"), where);
  BucketPlan plan = plan_buckets(plan_slots(slots_), order, caps_, kStatusElements);
  ++counters_.rebuilds;
  if (plan == set_->plan()) return;
  BucketSet moved(std::move(plan), slots_);
  if (options_.carry_contents) {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      Tensor target = moved.view(slot);
      target.copy_(set_->view(slot));
    }
  }
  set_.emplace(std::move(moved));
  if (options_.on_moved) options_.on_moved();
}

void Reducer::Impl::prepare(bool synchronize, bool allow_rebuild, std::source_location where) {
  {
    const std::scoped_lock lock(mutex_);
    DDP_CHECK(!open_, InvalidArgument, "prepare within a pass: finish or abandon the present one first");
  }
  settle(where);
  if (synchronize && allow_rebuild) rebuild(where);
  const std::scoped_lock lock(mutex_);
  open_ = true;
  synchronize_ = synchronize && !alone();
  abandoned_ = false;
  if (synchronize) ++counters_.passes;
  if (!synchronize_) return;
  ready_.assign(slots_.size(), false);
  copied_in_.assign(slots_.size(), Tensor());
  missing_.clear();
  twice_.clear();
  unexpected_.clear();
  arrival_.begin_pass();
  start_buckets();
}

void Reducer::Impl::start_buckets() {
  next_ = 0;
  awaited_ = 0;
  for (Bucket& bucket : set_->buckets()) {
    bucket.pending = 0;
    bucket.launched = false;
  }
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    if (!expected(slot)) continue;
    ++set_->buckets()[set_->bucket_of(slot)].pending;
    ++awaited_;
  }
}

void Reducer::Impl::mark_ready(std::size_t slot, StreamView stream, const Tensor& source) {
  const std::scoped_lock lock(mutex_);
  DDP_CHECK(open_, InvalidArgument, "gradient '", slots_[checked(slot)].name, "' became ready outside a pass");
  if (!synchronize_) return;
  if (ready_[checked(slot)]) {
    twice_.push_back(slot);
    return;
  }
  if (!active_[slot]) {
    unexpected_.push_back(slot);
    return;
  }
  ready_[slot] = true;
  arrival_.arrived(slot);
  const StreamView current = current_stream(device());
  if (!(stream == current)) {  // collectives begin after the current stream's work
    current.wait_for(stream);
  }
  const Tensor& from = source.defined() ? source : foreign_[slot];
  if (from.defined() && from.numel() > 0) {
    Tensor place = set_->view(slot);
    place.copy_(from);
    copied_in_[slot] = from;
    count_copied(from.nbytes());
  }
  const std::size_t index = set_->bucket_of(slot);
  if (index == BucketSet::kNoBucket) return;
  --awaited_;
  Bucket& bucket = set_->buckets()[index];
  if (--bucket.pending == 0 && trace::enabled()) {
    const std::int64_t now = trace::now_ns();
    trace::record(trace::SpanKind::bucket_ready, now, now, bucket.label, static_cast<std::int32_t>(index));
  }
  launch_ready();
}

// In plan order, whatever the order of arrival. The last bucket waits for `finish`: only then is the status
// of the pass known.
void Reducer::Impl::launch_ready() {
  const std::vector<Bucket>& buckets = set_->buckets();
  while (next_ + 1 < buckets.size() && buckets[next_].pending == 0) {
    launch(next_);
    if (awaited_ > 0) ++counters_.launched_before_last;
  }
}

void Reducer::Impl::launch(std::size_t index) {
  Bucket& bucket = set_->buckets()[index];
  next_ = index + 1;
  if (next_ == set_->buckets().size()) {
    const bool fault = !missing_.empty() || !twice_.empty() || !unexpected_.empty();
    write_status(set_->status(), {.fault = fault, .abandoned = abandoned_, .digest = digest()}, group_->rank());
  }
  bucket.work = group_->all_reduce(bucket.memory, comm::ReduceOp::sum, lane_options(index, bucket.label));
  bucket.launched = true;
  ++counters_.collectives;
  counters_.bytes_reduced += static_cast<std::uint64_t>(bucket.memory.nbytes());
}

// A rank at fault takes part in everything that was planned, with zeros, so that no peer waits for it.
void Reducer::Impl::zero_missing() {
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    if (!expected(slot) || ready_[slot]) continue;
    missing_.push_back(slot);
    Tensor place = set_->view(slot);
    place.zero_();
  }
}

void Reducer::Impl::launch_rest(bool abandoned) {
  abandoned_ = abandoned;
  zero_missing();
  while (next_ < set_->buckets().size()) launch(next_);
}

void Reducer::Impl::finish(bool blocking, std::source_location where) {
  std::unique_lock lock(mutex_);
  DDP_CHECK(open_, InvalidArgument, "finish without prepare");
  open_ = false;
  if (!synchronize_) return;
  const std::vector<Tensor> copied_in = std::exchange(copied_in_, {});
  launch_rest(false);
  lock.unlock();
  blocking = blocking || device().is_cpu();
  const StatusSum status = wait_for_sums(blocking, where);
  if (!blocking) {
    DDP_CHECK(missing_.empty() && twice_.empty() && unexpected_.empty(), ReductionError, describe({account()}),
              " (rank ", group_->rank(), ")");
  }
  DDP_CHECK(status.abandoned == 0, ReductionError, describe_abandoned(status));
  if (!status.healthy()) {
    throw ReductionError(exchange_accounts(*group_, account(), lane_options(0, "faults of a backward pass"), where));
  }
  copy_out(copied_in);
  arrival_.keep();
}

// Each sum is divided while later buckets are still on their way.
StatusSum Reducer::Impl::wait_for_sums(bool blocking, std::source_location where) {
  StatusSum status;
  std::vector<Bucket>& buckets = set_->buckets();
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const std::int64_t begin = trace::now_ns();
    const comm::Work work = std::exchange(buckets[i].work, {});
    work.wait(where);
    if (blocking) {
      work.wait_blocking(where);
      const std::int64_t end = trace::now_ns();
      counters_.exposed_ms += static_cast<double>(end - begin) * 1e-6;
      counters_.communication_ms += static_cast<double>(work.ended_ns() - work.started_ns()) * 1e-6;
      if (trace::enabled()) {
        const auto lane = static_cast<std::int32_t>(kFirstLane + i % lanes_);
        trace::record(trace::SpanKind::collective, work.started_ns(), work.ended_ns(), buckets[i].label, lane);
        trace::record(trace::SpanKind::wait, begin, end, buckets[i].label, static_cast<std::int32_t>(i));
      }
      if (i + 1 == buckets.size()) status = read_status(set_->status());
    }
    divide_(buckets[i].memory, group_->size());
  }
  return status;
}

void Reducer::Impl::copy_out(const std::vector<Tensor>& copied_in) {
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    Tensor target = copied_in[slot];
    if (!target.defined()) continue;
    target.copy_(set_->view(slot));
    count_copied(target.nbytes());
  }
}

void Reducer::Impl::abandon() noexcept {
  const std::scoped_lock lock(mutex_);
  if (!open_) return;
  open_ = false;
  if (!synchronize_) return;
  copied_in_.clear();
  try {
    launch_rest(true);
  } catch (...) {  // the group is unusable: its peers have an error of their own already
    next_ = set_->buckets().size();
  }
}

bool Reducer::Impl::in_pass() const {
  const std::scoped_lock lock(mutex_);
  return open_;
}

std::uint32_t Reducer::Impl::digest() const {
  Hash hash;
  hash.add(set_->plan_hash());
  hash.add(counters_.passes);
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) hash.add(active_[slot] ? 1 : 0);
  return static_cast<std::uint32_t>(hash.value());
}

PassAccount Reducer::Impl::account() const {
  PassAccount account;
  account.pass = counters_.passes;
  account.plan_hash = set_->plan_hash();
  for (const std::size_t slot : missing_) account.missing.push_back(slots_[slot].name);
  for (const std::size_t slot : twice_) account.twice.push_back(slots_[slot].name);
  for (const std::size_t slot : unexpected_) account.unexpected.push_back(slots_[slot].name);
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    if (!active_[slot]) account.inactive.push_back(slots_[slot].name);
  }
  return account;
}

std::vector<BucketInfo> Reducer::Impl::plan() const {
  std::vector<BucketInfo> out;
  if (!set_) return out;
  for (std::size_t i = 0; i < set_->buckets().size(); ++i) {
    const PlannedBucket& bucket = set_->plan().buckets[i];
    out.push_back({bucket.dtype, bucket.payload_bytes, set_->buckets()[i].memory.nbytes(), bucket.slots});
  }
  return out;
}

ReducerCounters Reducer::Impl::counters() const {
  const std::scoped_lock lock(mutex_);
  return counters_;
}

Reducer::Reducer(std::shared_ptr<comm::ProcessGroup> group, std::vector<GradientSlot> slots, ReducerOptions options,
                 std::source_location where)
    : impl_(std::make_unique<Impl>(std::move(group), std::move(slots), std::move(options), where)) {}
Reducer::~Reducer() { abandon(); }
std::size_t Reducer::num_slots() const { return impl_->num_slots(); }
Tensor Reducer::gradient(std::size_t slot) const { return impl_->view(slot); }
void* Reducer::gradient_data(std::size_t slot) const { return impl_->view(slot).data(); }
void Reducer::set_active(std::size_t slot, bool active) { impl_->set_active(slot, active); }
void Reducer::rebuild(std::source_location where) { impl_->rebuild(where); }
void Reducer::prepare(bool synchronize, bool allow_rebuild, std::source_location where) {
  impl_->prepare(synchronize, allow_rebuild, where);
}
void Reducer::mark_ready(std::size_t slot) { impl_->mark_ready(slot, current_stream(impl_->device()), {}); }
void Reducer::mark_ready(std::size_t slot, StreamView stream) { impl_->mark_ready(slot, stream, {}); }
void Reducer::mark_ready(std::size_t slot, const Tensor& gradient) {
  impl_->mark_ready(slot, current_stream(impl_->device()), gradient);
}
void Reducer::finish(std::source_location where) { impl_->finish(false, where); }
void Reducer::finish_blocking(std::source_location where) { impl_->finish(true, where); }
bool Reducer::in_pass() const { return impl_->in_pass(); }
void Reducer::abandon() noexcept { impl_->abandon(); }
std::vector<BucketInfo> Reducer::plan() const { return impl_->plan(); }
ReducerCounters Reducer::counters() const { return impl_->counters(); }

}  // namespace ddp::parallel
