#include "ddp/parallel/reducer.h"

#include <algorithm>

#include "ddp/trace/device_span.h"
#include "parallel/hash.h"
#include "parallel/reducer_impl.h"
#include "parallel/slot_check.h"
#include "parallel/start_check.h"
#include "tensor/tensor_impl.h"

namespace ddp::parallel {
namespace {

std::vector<PlanSlot> plan_slots(std::span<const GradientSlot> slots) {
  std::vector<PlanSlot> out;
  out.reserve(slots.size());
  for (const GradientSlot& slot : slots) out.push_back({slot.sizes.product(), slot.dtype, slot.device});
  return out;
}

}  // namespace

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
  const int own_lanes = kFirstLane + static_cast<int>(lanes_);
  if (device().is_cuda()) {
    in_process_ = SideChannel::needs_lane(*group_);
    group_->ensure_lanes(own_lanes + (in_process_ ? 1 : 0));
    side_channel_.emplace(group_, own_lanes);
    verdicts_.emplace(device());
    exposed_.emplace(device());
  } else {
    group_->ensure_lanes(own_lanes);
  }
  make_room(plan_buckets(plan_slots(slots_), reverse_order(slots_.size()), caps_, kStatusElements), where);
}

Reducer::Impl::~Impl() {
  if (verdicts_ && set_) Verdicts::release(*set_);
}

// New memory for a plan, with what the present one holds.
void Reducer::Impl::make_room(BucketPlan plan, std::source_location where) {
  BucketSet made(std::move(plan), slots_);
  if (set_ && options_.carry_contents) {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      Tensor target = made.view(slot);
      target.copy_(set_->view(slot));
    }
  }
  if (verdicts_) {
    if (set_) Verdicts::release(*set_);
    verdicts_->guard(made);
    // Gradients may be written on other streams than this one, which fills the memory.
    current_stream(device()).synchronize(where);
  }
  set_.emplace(std::move(made));
  counted_ = false;
  ready_.reserve(slots_.size());
}

void Reducer::Impl::set_active(std::size_t slot, bool active) {
  if (verdicts_ && active_[checked(slot)] != active) verify(std::source_location::current());
  const std::scoped_lock lock(mutex_);
  DDP_CHECK(!open_, InvalidArgument, "set_active within a pass, slot '", slots_[checked(slot)].name, "'");
  active_[checked(slot)] = active;
  counted_ = false;
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
  }
  meet_when_due(where);
  // On CUDA groups an order waits for its pass to be found healthy: here, once.
  if (verdicts_ && arrival_.wanted() && pass_ > refused_) {
    verify(where);
    if (pass_ > refused_) arrival_.keep();
  }
  if (!arrival_.pending()) return;
  settle(where);
  const std::vector<std::size_t> order =
      arrival_.agree(*group_, slots_.size(), {.label = "bucket re-plan", .lane = lane_of(0)}, where);
  BucketPlan plan = plan_buckets(plan_slots(slots_), order, caps_, kStatusElements);
  ++counters_.rebuilds;
  if (plan == set_->plan()) return;
  make_room(std::move(plan), where);
  if (options_.on_moved) options_.on_moved();
}

void Reducer::Impl::prepare(bool synchronize, bool allow_rebuild, std::source_location where) {
  {
    const std::scoped_lock lock(mutex_);
    DDP_CHECK(!open_, InvalidArgument, "prepare within a pass: finish or abandon the present one first");
  }
  if (verdicts_) {
    poll(where);
    // Before anything is waited for that a peer launches in there.
    if (synchronize) meet_when_due(where);
  }
  settle(where);
  if (synchronize && allow_rebuild) rebuild(where);
  const std::scoped_lock lock(mutex_);
  open_ = true;
  synchronize_ = synchronize && !alone();
  if (synchronize) ++counters_.passes;
  if (!synchronize_) return;
  ++pass_;
  status_ = {};
  ready_.assign(slots_.size(), false);
  copied_in_.clear();
  missing_.clear();
  twice_.clear();
  unexpected_.clear();
  arrival_.begin_pass();
  start_buckets();
}

void Reducer::Impl::start_buckets() {
  if (!counted_) count_expected();
  next_ = 0;
  awaited_ = 0;
  streams_.clear();
  for (std::size_t i = 0; i < set_->buckets().size(); ++i) {
    Bucket& bucket = set_->buckets()[i];
    bucket.pending = bucket.expected;
    awaited_ += bucket.expected;
    bucket.launched = false;
    bucket.writers.clear();
    // Inactive slots go along as they are: whoever clears them does so here.
    if (bucket.expected < set_->plan().buckets[i].slots.size()) written(bucket, current_stream(device()));
  }
}

void Reducer::Impl::count_expected() {
  Hash hash;
  for (Bucket& bucket : set_->buckets()) bucket.expected = 0;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    if (expected(slot)) ++set_->buckets()[set_->bucket_of(slot)].expected;
    hash.add(active_[slot] ? 1 : 0);
  }
  active_hash_ = hash.value();
  counted_ = true;
}

void Reducer::Impl::written(Bucket& bucket, StreamView stream) {
  if (device().is_cpu() || (!bucket.writers.empty() && bucket.writers.back() == stream)) return;
  const auto add = [stream](std::vector<StreamView>& streams) {
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
  };
  add(bucket.writers);
  add(streams_);
  bucket.memory.impl()->storage()->used_on(stream);
}

// A stream whose present end comes after all that was written into the bucket.
StreamView Reducer::Impl::writers_in_order(Bucket& bucket) {
  if (bucket.writers.empty()) return current_stream(device());
  if (bucket.writers.size() == 1) return bucket.writers.front();
  if (!joint_) joint_.emplace(device());
  for (const StreamView writer : bucket.writers) joint_->view().wait_for(writer);
  return *joint_;
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
  const Tensor& from = source.defined() ? source : foreign_[slot];
  if (from.defined() && from.numel() > 0) {
    const StreamGuard guard(stream);
    Tensor place = set_->view(slot);
    place.copy_(from);
    copied_in_.emplace_back(slot, from);
    count_copied(from.nbytes());
  }
  const std::size_t index = set_->bucket_of(slot);
  if (index == BucketSet::kNoBucket) return;
  --awaited_;
  Bucket& bucket = set_->buckets()[index];
  written(bucket, stream);
  if (--bucket.pending > 0) return;
  if (trace::sampled()) note_full(index);
  launch_ready();
}

// On the host's track and, on CUDA, on that of the stream which completed it.
void Reducer::Impl::note_full(std::size_t index) {
  const Bucket& bucket = set_->buckets()[index];
  const auto lane = static_cast<std::int32_t>(index);
  const std::int64_t now = trace::now_ns();
  trace::record(trace::SpanKind::bucket_ready, now, now, bucket.label, lane);
  if (bucket.writers.empty()) return;
  const StreamView stream = bucket.writers.back();
  trace::DeviceSpan(trace::SpanKind::bucket_ready, stream, bucket.label, lane).end(stream);
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
  // The group orders its stream after the current one.
  const StreamGuard guard(writers_in_order(bucket));
  if (next_ == set_->buckets().size()) {
    status_.fault = status_.fault || faulty();
    status_.digest = digest();
    write_status(set_->status(), status_, group_->rank());
  }
  bucket.work =
      group_->all_reduce(bucket.memory, comm::ReduceOp::average, {.label = bucket.label, .lane = lane_of(index)});
  bucket.launched = true;
  ++counters_.collectives;
  counters_.bytes_reduced += static_cast<std::uint64_t>(bucket.memory.nbytes());
}

// A rank at fault takes part in everything that was planned, with zeros, so that no peer waits for it.
void Reducer::Impl::zero_missing() {
  if (awaited_ == 0) return;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    if (!expected(slot) || ready_[slot]) continue;
    missing_.push_back(slot);
    Tensor place = set_->view(slot);
    place.zero_();
    written(set_->buckets()[set_->bucket_of(slot)], current_stream(device()));
  }
}

void Reducer::Impl::launch_rest() {
  zero_missing();
  while (next_ < set_->buckets().size()) launch(next_);
}

bool Reducer::Impl::in_pass() const {
  const std::scoped_lock lock(mutex_);
  return open_;
}

std::uint32_t Reducer::Impl::digest() const {
  Hash hash;
  hash.add(set_->plan_hash());
  hash.add(pass_);
  hash.add(active_hash_);
  return static_cast<std::uint32_t>(hash.value());
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
  if (exposed_) exposed_collected_ms_ += exposed_->collect();
  ReducerCounters counters = counters_;
  counters.exposed_ms += exposed_collected_ms_;
  return counters;
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
void Reducer::poll(std::source_location where) { impl_->poll(where); }
void Reducer::verify(std::source_location where) { impl_->verify(where); }
bool Reducer::in_pass() const { return impl_->in_pass(); }
void Reducer::abandon() noexcept { impl_->abandon(); }
std::vector<BucketInfo> Reducer::plan() const { return impl_->plan(); }
ReducerCounters Reducer::counters() const { return impl_->counters(); }

}  // namespace ddp::parallel
