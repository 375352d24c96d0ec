// The end of a pass, and what follows from a bad one.
#include <algorithm>

#include "ddp/trace/device_span.h"
#include "parallel/reducer_impl.h"
#include "tensor/tensor_impl.h"

namespace ddp::parallel {
namespace {

constexpr const char* kSums = "gradient sums";
// How long ranks wait for each other before an error is thrown that all of them should throw.
constexpr std::chrono::milliseconds kPatience{10'000};

}  // namespace

void Reducer::Impl::finish(bool blocking, std::source_location where) {
  {
    const std::scoped_lock lock(mutex_);
    DDP_CHECK(open_, InvalidArgument, "finish without prepare");
    open_ = false;
    if (!synchronize_) return;
    launch_rest();
  }
  if (verdicts_) {
    // To wait for a sum of an in-process group may block the host until the peers have called; one of them may be at a
    // meeting about the pass before this one, and wait for this rank.
    if (in_process_ && pass_ - 1 > settled_ && !meeting_due_) {
      take(verdicts_->wait(pass_ - 1, settled_, last_sum_, group_->timeout(), where), where);
    }
    order_sums(where);
    if (!blocking && !faulty()) {
      copy_out();
      poll(where);
      return;
    }
    verify(where);
    copy_out();
    return;
  }
  const StatusSum status = wait_for_sums(where);
  DDP_CHECK(status.abandoned == 0, ReductionError, describe_abandoned(status));
  if (!status.healthy()) {
    throw ReductionError(
        exchange_accounts(*group_, account(pass_), {.label = "faults of a backward pass", .lane = lane_of(0)}, where));
  }
  copy_out();
  arrival_.keep();
}

// On CPU groups: the host waits.
StatusSum Reducer::Impl::wait_for_sums(std::source_location where) {
  const std::int64_t begin = trace::now_ns();
  std::vector<Bucket>& buckets = set_->buckets();
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const comm::Work work = std::exchange(buckets[i].work, {});
    work.wait_blocking(where);  // a blocking call, which is recorded as such
    counters_.communication_ms += static_cast<double>(work.ended_ns() - work.started_ns()) * 1e-6;
    if (!trace::sampled()) continue;
    trace::record(trace::SpanKind::collective, work.started_ns(), work.ended_ns(), buckets[i].label, lane_of(i));
  }
  const std::int64_t end = trace::now_ns();
  counters_.exposed_ms += static_cast<double>(end - begin) * 1e-6;
  trace::record(trace::SpanKind::exposed, begin, end, kSums);
  return buckets.empty() ? StatusSum{} : read_status(set_->status(), group_->size());
}

// On CUDA groups: the current stream waits, and whatever else has written gradients.
void Reducer::Impl::order_sums(std::source_location where) {
  const StreamView stream = current_stream(device());
  std::vector<Bucket>& buckets = set_->buckets();
  if (buckets.empty()) {
    settled_ = pass_;
    return;
  }
  trace::DeviceSpan span(trace::SpanKind::exposed, stream, kSums);
  exposed_collected_ms_ += exposed_->collect();
  exposed_->begin(stream);
  for (Bucket& bucket : buckets) {
    last_sum_ = std::exchange(bucket.work, {});
    last_sum_.wait(stream, where);
    bucket.memory.impl()->storage()->used_on(stream);
  }
  exposed_->end(stream);
  span.end(stream);
  verdicts_->judge(set_->status(), group_->size(), pass_, group_->failure_word());
  judged_on_ = stream;
  // Updates may be queued there. They need the sums, and the verdict on them just as much.
  for (const StreamView writer : streams_) {
    if (!(writer == stream)) verdicts_->extend_to(writer);
  }
}

void Reducer::Impl::copy_out() {
  for (auto& [slot, target] : copied_in_) {
    target.copy_(set_->view(slot));
    if (verdicts_) verdicts_->guard(target);
    count_copied(target.nbytes());
  }
  copied_in_.clear();
}

PassAccount Reducer::Impl::account(std::uint32_t pass) const {
  PassAccount account;
  account.pass = pass;
  account.latest = pass_;
  account.plan_hash = set_->plan_hash();
  for (const std::size_t slot : missing_) account.missing.push_back(slots_[slot].name);
  for (const std::size_t slot : twice_) account.twice.push_back(slots_[slot].name);
  for (const std::size_t slot : unexpected_) account.unexpected.push_back(slots_[slot].name);
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    if (!active_[slot]) account.inactive.push_back(slots_[slot].name);
  }
  return account;
}

void Reducer::Impl::poll(std::source_location where) {
  if (!verdicts_ || meeting_due_ || in_pass()) return;
  const Verdicts::Verdict verdict = verdicts_->look();
  if (verdict.pass > settled_) take(verdict, where);
}

void Reducer::Impl::verify(std::source_location where) {
  if (!verdicts_ || meeting_due_ || settled_ == pass_) return;
  DDP_CHECK(!in_pass(), InvalidArgument, "verify within a pass");
  take(verdicts_->wait(pass_, settled_, last_sum_, group_->timeout(), where), where);
}

void Reducer::Impl::take(const Verdicts::Verdict& verdict, std::source_location where) {
  if (!verdict.bad) {
    settled_ = verdict.pass;
    return;
  }
  throw_if_group_failed(where);
  if (verdict.status.abandoned > 0) {
    // That rank is on its way elsewhere, so nobody waits for it. But this rank leaves word how far it has come: when
    // the other one goes on, it matches what is queued here without waiting for this rank, which may wait for its
    // device.
    meeting_due_ = true;
    try {
      if (!in_process_) static_cast<void>(meet(verdict.pass, std::chrono::milliseconds(0), where));
    } catch (const CommError&) {
      meeting_due_ = true;
    }
    throw ReductionError(describe_abandoned(verdict.status));
  }
  throw ReductionError(meet(verdict.pass, std::min(group_->timeout(), kPatience), where));
}

// A dead group's sums are no sums, and its ranks meet no more.
void Reducer::Impl::throw_if_group_failed(std::source_location where) {
  if (const std::exception_ptr error = last_sum_.error()) std::rethrow_exception(error);
  const std::uint64_t* failed = group_->failure_word();
  if (failed == nullptr || *static_cast<const volatile std::uint64_t*>(failed) == 0) return;
  group_->barrier({.label = "after a failed reduction"}, where);  // throws what the group died of
}

// Ranks notice a bad pass at different points: at once where the fault is, which stays here until the others come, and
// elsewhere when the verdict is seen, with the buckets of further passes launched perhaps. Those are matched, so that
// what is queued on the lanes comes to an end; they were refused like the first. Then all ranks are in the same place.
//
// Returns the error's text. A rank that waits for its device, which waits for sums that nobody matches before this
// meeting, does not come. So patience is short: the error then goes out with what is known, and where it ends the
// program it ends the group, which frees the others. What this rank has said stands in the store for them.
std::string Reducer::Impl::meet(std::uint32_t pass, std::chrono::milliseconds patience, std::source_location where) {
  const PassAccount mine = account(pass);
  const auto heard = side_channel_->all_gather(encode(mine), patience, where);
  std::vector<PassAccount> accounts;
  std::string silent;
  std::uint64_t latest = 0;
  for (std::size_t rank = 0; rank < heard.size(); ++rank) {
    if (heard[rank]) {
      accounts.push_back(decode_account(*heard[rank]));
      latest = std::max(latest, accounts.back().latest);
      continue;
    }
    accounts.push_back(mine);  // says nothing that differs
    accounts.back().missing.clear();
    accounts.back().twice.clear();
    accounts.back().unexpected.clear();
    silent += concat(silent.empty() ? "" : ", ", rank);
  }
  meeting_due_ = !silent.empty();
  std::string text = describe(accounts);
  if (meeting_due_) return concat(text, " (not heard within ", patience.count(), " ms: rank ", silent, ")");
  missing_.clear();
  twice_.clear();
  unexpected_.clear();
  catch_up(latest, where);
  settled_ = pass_;
  refused_ = pass_;
  return text;
}

void Reducer::Impl::meet_when_due(std::source_location where) {
  if (!meeting_due_) return;
  const std::string text = meet(pass_, group_->timeout(), where);
  DDP_CHECK(!meeting_due_, TimeoutError, "the ranks do not meet after a failed backward pass: ", text);
}

void Reducer::Impl::catch_up(std::uint64_t latest, std::source_location where) {
  const std::scoped_lock lock(mutex_);
  const StreamView stream = current_stream(device());
  const std::vector<StreamView> writers = streams_;  // of the latest pass; updates that are refused may be queued there
  try {
    while (pass_ < latest) {
      ++pass_;
      status_ = {.fault = true};
      start_buckets();
      awaited_ = 0;
      while (next_ < set_->buckets().size()) launch(next_);
      for (Bucket& bucket : set_->buckets()) std::exchange(bucket.work, {}).wait(stream, where);
    }
  } catch (const CommError&) {
    pass_ = static_cast<std::uint32_t>(latest);  // the group is unusable, which the next collective says
  }
  if (judged_on_ && !(*judged_on_ == stream)) stream.wait_for(*judged_on_);
  for (const StreamView writer : writers) {
    if (!(writer == stream)) stream.wait_for(writer);
  }
  verdicts_->clear();
}

void Reducer::Impl::abandon() noexcept {
  const std::scoped_lock lock(mutex_);
  if (!open_) return;
  open_ = false;
  if (!synchronize_) return;
  copied_in_.clear();
  status_.abandoned = true;
  try {
    launch_rest();
  } catch (...) {  // the group is unusable: its peers have an error of their own already
    next_ = set_->buckets().size();
  }
  if (!verdicts_) return;
  meeting_due_ = true;
  try {
    verdicts_->refuse();
  } catch (...) {  // a device in trouble updates nothing
    return;
  }
}

}  // namespace ddp::parallel
