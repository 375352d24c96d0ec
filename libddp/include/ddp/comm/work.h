#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <source_location>

#include "ddp/core/stream.h"

namespace ddp::comm {

/// What a backend implements behind Work. Private to backends and tests.
class WorkState {
 public:
  virtual ~WorkState() = default;
  virtual bool is_completed() const = 0;
  virtual void wait(StreamView stream, std::source_location where) = 0;
  virtual void wait_blocking(std::source_location where) = 0;
  virtual std::exception_ptr error() const = 0;
  /// Whose current stream `Work::wait()` orders.
  virtual Device device() const { return Device::cpu(); }
  /// Host nanoseconds (steady clock) when the collective began to run and when it ended; 0 before.
  virtual std::int64_t started_ns() const { return 0; }
  virtual std::int64_t ended_ns() const { return 0; }
};

/// A collective on its way. Cheap to copy; keeps the tensors' memory alive; dropping it never blocks and
/// does not stop the collective. Thread safe.
class Work {
 public:
  /// Already complete.
  Work() = default;
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

  /// True when the result is there (or the collective failed). Does not block.
  bool is_completed() const { return !state_ || state_->is_completed(); }
  /// Orders: later work of `stream` (default: the thread's current stream of the tensors' device) comes
  /// after the collective. On CPU groups the host blocks until it is done. Throws CommError or
  /// TimeoutError when it failed.
  void wait(std::source_location where = std::source_location::current()) const;
  void wait(StreamView stream, std::source_location where = std::source_location::current()) const;
  /// Blocks the host until the result is there. Throws as `wait`.
  void wait_blocking(std::source_location where = std::source_location::current()) const;
  /// The failure, or null. Does not block.
  std::exception_ptr error() const { return state_ ? state_->error() : nullptr; }
  /// Host nanoseconds (steady clock); 0 before. On CUDA: when it was queued, and when its end was first seen.
  std::int64_t started_ns() const { return state_ ? state_->started_ns() : 0; }
  std::int64_t ended_ns() const { return state_ ? state_->ended_ns() : 0; }

 private:
  std::shared_ptr<WorkState> state_;
};

}  // namespace ddp::comm
