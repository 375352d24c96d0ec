#include "comm/stream_work.h"

#include <thread>

#include "comm/group_core.h"
#include "comm/signature.h"
#include "core/observer.h"

namespace ddp::comm {
namespace {

// A collective among GPUs takes tens of microseconds: the first looks follow each other at once, later ones pause.
constexpr std::chrono::microseconds kSpin{50};
constexpr std::chrono::microseconds kFirstPause{20};
constexpr std::chrono::microseconds kLongestPause{500};

class Pauses {
 public:
  void pause() {
    if (Clock::now() < spin_until_) {
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(pause_ * 2, kLongestPause);
  }

 private:
  const Clock::time_point spin_until_ = Clock::now() + kSpin;
  std::chrono::microseconds pause_ = kFirstPause;
};

}  // namespace

bool StreamWork::settle() {
  std::shared_ptr<const Event> done;
  {
    const auto guard = lock();
    if (ended()) return true;
    done = done_;
  }
  if (!done || !done->is_complete()) return false;
  if (const auto owner = core()) {
    owner->finish(*this);
  } else {
    end();
  }
  return true;
}

bool StreamWork::is_completed() const {
  try {
    return const_cast<StreamWork*>(this)->settle();  // what is known of it changes, not what it is
  } catch (const Error&) {
    return false;  // the watchdog turns it into a failure
  }
}

bool StreamWork::queued(std::shared_ptr<const Event> done) {
  const auto guard = lock();
  done_ = std::move(done);
  condition().notify_all();
  if (ended()) return false;
  mark_started();
  return true;
}

bool StreamWork::released() const noexcept {
  std::shared_ptr<const Event> done;
  {
    const auto guard = lock();
    done = done_;
  }
  try {
    return !done || done->is_complete();
  } catch (const Error&) {
    return true;  // a device in trouble runs nothing any more
  }
}

void StreamWork::throw_if_failed(std::unique_lock<std::mutex>& lock) {
  if (failure() == nullptr) return;
  const Failure failed = *failure();
  lock.unlock();
  // The caller may free the memory once this throws.
  Pauses pauses;
  const auto until = Clock::now() + kReleaseGrace;
  while (!released() && Clock::now() < until) pauses.pause();
  throw_failure(failed);
}

std::shared_ptr<const Event> StreamWork::await_queued(std::source_location where) {
  auto guard = lock();
  if (!done_ && !ended()) {
    const core::BlockingScope scope("comm::Work::wait for a peer's call", device_, where);
    if (!condition().wait_until(guard, deadline() + kGrace, [this] { return done_ != nullptr || ended(); })) {
      guard.unlock();
      if (const auto owner = core()) owner->expire(*this);
      guard.lock();
    }
  }
  throw_if_failed(guard);
  return done_;
}

// What the device says of an event names neither collective nor rank. (The watchdog ends the group of it.)
void StreamWork::throw_of_device(const DeviceError& error) const {
  const auto owner = core();  // null: it has ended meanwhile
  throw DeviceError(owner ? in_collective(collective(), owner->rank(), owner->size(), error.what())
                          : concat(title(collective()), ", ", describe(collective()), ": ", error.what()));
}

void StreamWork::wait(StreamView stream, std::source_location where) {
  if (stream.device().is_cpu()) {
    wait_blocking(where);
    return;
  }
  const auto done = await_queued(where);
  if (!done) return;
  try {
    stream.wait(*done);
  } catch (const DeviceError& error) {
    throw_of_device(error);
  }
}

bool StreamWork::settle_or_throw() {
  try {
    return settle();
  } catch (const DeviceError& error) {
    throw_of_device(error);
  }
}

void StreamWork::wait_blocking(std::source_location where) {
  const auto done = await_queued(where);
  if (settle_or_throw()) {
    auto guard = lock();
    throw_if_failed(guard);
    return;
  }
  const core::BlockingScope scope("comm::Work::wait_blocking", device_, where);
  Pauses pauses;
  while (!settle_or_throw()) {
    if (Clock::now() >= deadline() + kGrace) {
      if (const auto owner = core()) owner->expire(*this);
    }
    pauses.pause();
  }
  auto guard = lock();
  throw_if_failed(guard);
}

}  // namespace ddp::comm
