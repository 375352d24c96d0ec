#include "comm/async_work.h"

#include <algorithm>

#include "comm/group_core.h"
#include "core/observer.h"
#include "ddp/trace/recorder.h"

namespace ddp::comm {
std::exception_ptr to_exception(const Failure& failure) {
  return failure.timeout ? std::make_exception_ptr(TimeoutError(failure.text))
                         : std::make_exception_ptr(CommError(failure.text));
}

void throw_failure(const Failure& failure) {
  if (failure.timeout) throw TimeoutError(failure.text);
  throw CommError(failure.text);
}

Clock::time_point deadline_after(std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kLongest{std::chrono::hours(24 * 365)};
  return Clock::now() + std::min(timeout, kLongest);
}

AsyncWork::AsyncWork(Collective collective, std::chrono::milliseconds timeout, std::shared_ptr<GroupCore> core)
    : collective_(std::move(collective)),
      timeout_(timeout),
      issued_(Clock::now()),
      deadline_(deadline_after(timeout)),
      core_(std::move(core)) {}

bool AsyncWork::is_completed() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

void AsyncWork::wait(StreamView /*stream*/, std::source_location where) { wait_blocking(where); }

void AsyncWork::wait_blocking(std::source_location where) {
  std::unique_lock lock(mutex_);
  if (!ended_) {
    const core::BlockingScope scope("comm::Work::wait", Device::cpu(), where);
    if (!ended_condition_.wait_until(lock, deadline_ + kGrace, [this] { return ended_; })) {
      const auto core = core_;
      lock.unlock();
      if (core) core->expire(*this);
      lock.lock();
    }
  }
  if (failed_) {
    // The caller may free the memory once this throws.
    ended_condition_.wait_until(lock, Clock::now() + kReleaseGrace, [this] { return !busy_; });
    const Failure failure = failure_;
    lock.unlock();
    throw_failure(failure);
  }
}

std::exception_ptr AsyncWork::error() const {
  const std::lock_guard lock(mutex_);
  return failed_ ? to_exception(failure_) : nullptr;
}

std::int64_t AsyncWork::started_ns() const {
  const std::lock_guard lock(mutex_);
  return started_ns_;
}

std::int64_t AsyncWork::ended_ns() const {
  const std::lock_guard lock(mutex_);
  return ended_ns_;
}

std::shared_ptr<GroupCore> AsyncWork::core() const {
  const std::lock_guard lock(mutex_);
  return core_;
}

void AsyncWork::mark_started() { started_ns_ = trace::now_ns(); }

bool AsyncWork::begin() {
  const std::lock_guard lock(mutex_);
  if (ended_) return false;
  busy_ = true;
  started_ns_ = trace::now_ns();
  return true;
}

bool AsyncWork::end() {
  std::shared_ptr<GroupCore> core;  // dropped outside the lock
  bool ended_here = false;
  {
    const std::lock_guard lock(mutex_);
    busy_ = false;
    if (!ended_) {
      ended_ = ended_here = true;
      ended_ns_ = trace::now_ns();
      core = std::move(core_);
    }
    ended_condition_.notify_all();
  }
  return ended_here;
}

bool AsyncWork::fail(Failure failure) {
  std::shared_ptr<GroupCore> core;
  const std::lock_guard lock(mutex_);
  if (ended_) return false;
  ended_ = failed_ = true;
  failure_ = std::move(failure);
  ended_ns_ = trace::now_ns();
  core = std::move(core_);
  ended_condition_.notify_all();
  return true;
}

std::chrono::milliseconds AsyncWork::remaining() const {
  return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()),
                  std::chrono::milliseconds(1));
}

}  // namespace ddp::comm
