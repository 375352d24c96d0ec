#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "ddp/comm/process_group.h"

namespace ddp::comm {

using Clock = std::chrono::steady_clock;

/// Why a collective failed. Kept as text, so that each waiting thread throws an exception of its own.
struct Failure {
  bool timeout = false;
  std::string text;
};
std::exception_ptr to_exception(const Failure& failure);
[[noreturn]] void throw_failure(const Failure& failure);

/// `now + timeout` without overflow for very long times.
Clock::time_point deadline_after(std::chrono::milliseconds timeout);

class GroupCore;

/// One collective on its way. As it is: of a CPU group, whose executor says when it has ended; StreamWork for devices.
class AsyncWork : public WorkState {
 public:
  AsyncWork(Collective collective, std::chrono::milliseconds timeout, std::shared_ptr<GroupCore> core);

  // --- WorkState ---
  bool is_completed() const override;
  void wait(StreamView stream, std::source_location where) override;
  void wait_blocking(std::source_location where) override;
  std::exception_ptr error() const override;
  std::int64_t started_ns() const override;
  std::int64_t ended_ns() const override;

  // --- for backends ---
  /// Looks whether it is over, where that shows on a device, and then finishes it. True when it has ended. Does not
  /// block. Throws DeviceError when the device is in trouble.
  virtual bool settle() { return is_completed(); }
  /// Null once ended.
  std::shared_ptr<GroupCore> core() const;
  const Collective& collective() const { return collective_; }
  Clock::time_point issued() const { return issued_; }
  Clock::time_point deadline() const { return deadline_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  /// Somebody works on the tensors' memory from here on. False when the work has ended already.
  bool begin();
  /// Nobody touches the memory any more. Without a failure the work is complete, unless it had failed before.
  /// Returns true when this call ended it.
  bool end();
  /// Ends it with a failure; a waiting call returns once `end` was called too, if `begin` was. False when it had ended.
  bool fail(Failure failure);
  /// The time until the deadline, at least one millisecond.
  std::chrono::milliseconds remaining() const;

 protected:
  /// The watchdog ends a late collective; waiting threads do so themselves only when it could not.
  static constexpr std::chrono::milliseconds kGrace{500};
  /// For whoever works on the memory of a failed collective to let go of it. Backends wake them at once.
  static constexpr std::chrono::seconds kReleaseGrace{5};
  std::unique_lock<std::mutex> lock() const { return std::unique_lock(mutex_); }
  // Under the lock:
  bool ended() const { return ended_; }
  const Failure* failure() const { return failed_ ? &failure_ : nullptr; }
  std::condition_variable& condition() { return ended_condition_; }
  void mark_started();

 private:
  const Collective collective_;
  const std::chrono::milliseconds timeout_;
  const Clock::time_point issued_;
  const Clock::time_point deadline_;
  std::shared_ptr<GroupCore> core_;  // gone when ended

  mutable std::mutex mutex_;
  std::condition_variable ended_condition_;
  bool busy_ = false;
  bool ended_ = false;
  bool failed_ = false;
  Failure failure_;
  std::int64_t started_ns_ = 0;
  std::int64_t ended_ns_ = 0;
};

}  // namespace ddp::comm
