#include "comm/group_core.h"

#include <algorithm>

#include "comm/signature.h"

namespace ddp::comm {
namespace {

constexpr std::chrono::milliseconds kLateAfter{500};
constexpr std::chrono::milliseconds kLook{250};

// Short limits still leave time to ask around before they pass.
std::chrono::milliseconds late_after(const AsyncWork& work) { return std::min(kLateAfter, work.timeout() / 3); }

}  // namespace

std::string in_collective(const Collective& collective, int rank, int size, const std::string& text) {
  return concat("rank ", rank, " of ", size, ": ", title(collective), ", ", describe(collective), ": ", text);
}

GroupCore::GroupCore(int rank, int size, std::chrono::milliseconds timeout)
    : rank_(rank), size_(size), timeout_(timeout) {}

std::shared_ptr<AsyncWork> GroupCore::issue(Collective collective, Watchdog& watchdog) {
  const auto timeout = collective.options.timeout.count() > 0 ? collective.options.timeout : timeout_;
  auto work = std::make_shared<AsyncWork>(std::move(collective), timeout, shared_from_this());
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    if (death_) {
      work->fail({.timeout = false,
                  .text = in_collective(work->collective(), rank_, size_,
                                        concat("the group is unusable since: ", death_->text))});
      return work;
    }
    first = outstanding_.empty();
    outstanding_.push_back(work);
  }
  if (first) watchdog.wake();
  return work;
}

void GroupCore::forget(const AsyncWork& work) {
  std::shared_ptr<AsyncWork> last;  // dropped outside the lock
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(outstanding_, [&](const auto& entry) { return entry.get() == &work; });
  if (found == outstanding_.end()) return;
  last = std::move(*found);
  *found = std::move(outstanding_.back());
  outstanding_.pop_back();
}

void GroupCore::finish(AsyncWork& work) {
  // Forgotten first: whoever sees the work complete must not find it outstanding.
  const auto self = shared_from_this();
  forget(work);
  work.end();
}

void GroupCore::finish(AsyncWork& work, const Failure& failure) {
  const auto self = shared_from_this();
  work.fail(failure);
  forget(work);
  work.end();
  die(failure);
}

void GroupCore::expire(AsyncWork& work) {
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - work.issued());
  const Failure failure{.timeout = true,
                        .text = in_collective(work.collective(), rank_, size_,
                                              concat("timed out after ", waited.count(), " ms (limit ",
                                                     work.timeout().count(), " ms)", missing(work)))};
  if (work.fail(failure)) die(failure);
}

void GroupCore::die(const Failure& failure) {
  std::vector<std::shared_ptr<AsyncWork>> pending;
  {
    const std::lock_guard lock(mutex_);
    if (death_) return;
    death_ = failure;
    pending.swap(outstanding_);
  }
  for (const auto& work : pending) {
    work->fail({.timeout = false,
                .text = in_collective(work->collective(), rank_, size_,
                                      concat("ended because the group failed: ", failure.text))});
  }
  on_death(failure);
}

bool GroupCore::dead() const {
  const std::lock_guard lock(mutex_);
  return death_.has_value();
}

std::string GroupCore::death_reason() const {
  const std::lock_guard lock(mutex_);
  return death_ ? death_->text : std::string();
}

void GroupCore::drain() noexcept {
  while (true) {
    std::shared_ptr<AsyncWork> next;
    {
      const std::lock_guard lock(mutex_);
      if (outstanding_.empty()) return;
      next = outstanding_.front();
    }
    try {
      next->wait_blocking(std::source_location::current());
    } catch (const std::exception&) {
      // A destructor has nobody to tell; the failure stands in the work.
    }
    forget(*next);
  }
}

Clock::time_point GroupCore::poll(Clock::time_point now) noexcept {
  std::vector<std::shared_ptr<AsyncWork>> expired;
  std::vector<std::shared_ptr<AsyncWork>> late;
  auto next = Clock::time_point::max();
  {
    const std::lock_guard lock(mutex_);
    for (const auto& work : outstanding_) {
      const auto late_at = work->issued() + late_after(*work);
      if (work->deadline() <= now) {
        expired.push_back(work);
      } else if (late_at <= now) {
        late.push_back(work);
        next = std::min({next, work->deadline(), now + kLook});
      } else {
        next = std::min(next, late_at);
      }
    }
  }
  for (const auto& work : expired) expire(*work);
  for (const auto& work : late) on_late(work);
  return next;
}

}  // namespace ddp::comm
