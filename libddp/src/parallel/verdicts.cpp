#include "parallel/verdicts.h"

#include <atomic>
#include <thread>

#include "core/observer.h"
#include "tensor/copy.h"
#include "tensor/tensor_impl.h"

namespace ddp::parallel {

Verdicts::Verdicts(Device device) : state_(zeros({16}, {DType::int32, device})), host_(raw::take_host_word(device)) {}

void Verdicts::guard(const BucketSet& set) const {
  for (const Bucket& bucket : set.buckets()) guard(bucket.memory);
}

void Verdicts::guard(const Tensor& memory) const { memory.impl()->storage()->set_refusal(state_.impl()->storage()); }

void Verdicts::release(const BucketSet& set) {
  for (const Bucket& bucket : set.buckets()) bucket.memory.impl()->storage()->set_refusal({});
}

void Verdicts::judge(const Tensor& word, int ranks, std::uint32_t pass, const std::uint64_t* failed) {
  raw::judge_status_word(word, ranks, pass, state_, host_, failed);
  // Updates that are still queued there read it when this object may be gone.
  state_.impl()->storage()->used_on(current_stream(state_.device()));
}

void Verdicts::extend_to(StreamView stream) const {
  stream.wait_for(current_stream(state_.device()));
  state_.impl()->storage()->used_on(stream);
}

Verdicts::Verdict Verdicts::look() const {
  const std::uint64_t told = std::atomic_ref<std::uint64_t>(*host_).load(std::memory_order_acquire);
  const auto verdict = static_cast<std::uint32_t>(told);
  return {static_cast<std::uint32_t>(told >> 32U), verdict != 0, decode_verdict(verdict)};
}

Verdicts::Verdict Verdicts::wait(std::uint32_t pass, std::uint32_t after, const comm::Work& sum,
                                 std::chrono::milliseconds timeout, std::source_location where) const {
  using Clock = std::chrono::steady_clock;
  const auto there = [&](const Verdict& verdict) {
    return verdict.pass > after && (verdict.bad || verdict.pass >= pass);
  };
  Verdict verdict = look();
  if (there(verdict)) return verdict;
  const core::BlockingScope scope("verdict on a reduction", state_.device(), where);
  // Not for the sum alone: it may be one of a pass after the bad one, which a peer launches only when this rank has
  // seen the verdict and come to the meeting. The watchdog fails a sum that is late.
  const auto begin = Clock::now();
  auto stuck_at = Clock::time_point::max();
  for (verdict = look(); !there(verdict); verdict = look()) {
    if (const std::exception_ptr error = sum.error()) std::rethrow_exception(error);
    const auto now = Clock::now();
    // With the sum there, what is left is a launch of some microseconds, and what the stream had before it.
    if (stuck_at == Clock::time_point::max() && sum.is_completed()) stuck_at = now + timeout;
    DDP_CHECK(now < stuck_at, TimeoutError, "the verdict on pass ", pass, " of a reduction on ", state_.device(),
              " did not come within ", timeout.count(), " ms after its last sum; the device seems to be stuck");
    if (now - begin > std::chrono::microseconds(50)) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return verdict;
}

// Only what takes a refusal back raises the version of the word (see Storage::refusal_word).
void Verdicts::refuse() { raw::fill_(state_, 1); }
void Verdicts::clear() { state_.zero_(); }

}  // namespace ddp::parallel
