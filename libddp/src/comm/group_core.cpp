#include "comm/group_core.h"

#include <algorithm>

#include "comm/signature.h"

namespace ddp::comm {
namespace {

constexpr std::chrono::milliseconds kLateAfter{500};
constexpr std::chrono::milliseconds kLook{250};
// A group with nothing outstanding is looked at once more after this time before the watchdog forgets about it.
constexpr std::chrono::milliseconds kIdleLook{200};
constexpr std::size_t kMany = 16;

// Short limits still leave time to ask around before they pass.
std::chrono::milliseconds late_after(const AsyncWork& work) { return std::min(kLateAfter, work.timeout() / 3); }

}  // namespace

std::string in_collective(const Collective& collective, int rank, int size, const std::string& text) {
  return concat("rank ", rank, " of ", size, ": ", title(collective), ", ", describe(collective), ": ", text);
}

GroupCore::GroupCore(int rank, int size, std::chrono::milliseconds timeout)
    : rank_(rank), size_(size), timeout_(timeout) {}

std::chrono::milliseconds GroupCore::timeout_of(const Collective& collective) const {
  return collective.options.timeout.count() > 0 ? collective.options.timeout : timeout_;
}

std::shared_ptr<AsyncWork> GroupCore::issue(Collective collective, Watchdog& watchdog) {
  const auto timeout = timeout_of(collective);
  auto work = std::make_shared<AsyncWork>(std::move(collective), timeout, shared_from_this());
  admit(work, watchdog);
  return work;
}

void GroupCore::admit(const std::shared_ptr<AsyncWork>& work, Watchdog& watchdog) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (death_) {
      work->fail({.timeout = false,
                  .text = in_collective(work->collective(), rank_, size_,
                                        concat("the group is unusable since: ", death_->text))});
      return;
    }
    // A short limit is looked at from its start on.
    wake = unwatched_ || (outstanding_.empty() && work->timeout() < kIdleLook * 10);
    unwatched_ = false;
    outstanding_.push_back(work);
  }
  if (wake) watchdog.wake();
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
  work.end();
  die(failure);  // while it is outstanding: a device may still use its memory, see bury
  forget(work);
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
  bury(std::move(pending));
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

std::shared_ptr<AsyncWork> GroupCore::oldest() const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::min_element(outstanding_, {}, [](const auto& work) { return work->issued(); });
  return found == outstanding_.end() ? nullptr : *found;
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

void GroupCore::settle_outstanding() {
  std::vector<std::shared_ptr<AsyncWork>> works;
  {
    const std::lock_guard lock(mutex_);
    works = outstanding_;
  }
  try {
    for (const auto& work : works) work->settle();
  } catch (const Error& error) {
    die({.timeout = false, .text = concat("rank ", rank_, " of ", size_, ": ", error.what())});
  }
}

void GroupCore::settle_many() {
  {
    const std::lock_guard lock(mutex_);
    // Not at each further one: where many buckets are on their way, each look asks after all of them.
    if (outstanding_.empty() || outstanding_.size() % kMany != 0) return;
  }
  settle_outstanding();
}

Clock::time_point GroupCore::poll(Clock::time_point now) noexcept {
  if (look_every().count() > 0) {
    settle_outstanding();
    if (const auto failure = dead() ? std::nullopt : found_failure()) die(*failure);
  }
  std::vector<std::shared_ptr<AsyncWork>> expired;
  std::vector<std::shared_ptr<AsyncWork>> late;
  auto next = Clock::time_point::max();
  {
    const std::lock_guard lock(mutex_);
    if (outstanding_.empty()) {
      if (unwatched_ || idle_) {
        unwatched_ = true;
        return next;
      }
      idle_ = true;
      return now + kIdleLook;
    }
    idle_ = false;
    if (look_every().count() > 0) next = now + look_every();
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
