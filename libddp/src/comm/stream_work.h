#pragma once

#include <memory>

#include "comm/async_work.h"

namespace ddp::comm {

/// One collective of a group on a device: once queued, it is complete when an event is. `wait` orders a stream after
/// that event and blocks the host only while the collective is not queued yet, because a peer has not called.
///
/// started_ns is the host's time when it was queued, ended_ns when its end was first seen; recorded spans hold the
/// device's own times.
class StreamWork final : public AsyncWork {
 public:
  StreamWork(Collective collective, std::chrono::milliseconds timeout, std::shared_ptr<GroupCore> core, Device device)
      : AsyncWork(std::move(collective), timeout, std::move(core)), device_(device) {}

  // --- WorkState ---
  bool is_completed() const override;
  void wait(StreamView stream, std::source_location where) override;
  void wait_blocking(std::source_location where) override;
  Device device() const override { return device_; }

  // --- for backends ---
  bool settle() override;
  /// All of it is queued: it is complete when the event is. False when it has failed meanwhile; the event then still
  /// says when the device lets go of the memory.
  bool queued(std::shared_ptr<const Event> done);
  /// The device does not touch its memory (any more).
  bool released() const noexcept;
  /// The point of the caller's stream after which its tensors are there; for backends that queue later.
  void set_ready(std::shared_ptr<const Event> ready) { ready_ = std::move(ready); }
  const Event& ready() const { return *ready_; }

 private:
  std::shared_ptr<const Event> await_queued(std::source_location where);
  bool settle_or_throw();
  [[noreturn]] void throw_of_device(const DeviceError& error) const;
  void throw_if_failed(std::unique_lock<std::mutex>& lock);

  const Device device_;
  std::shared_ptr<const Event> ready_;
  std::shared_ptr<const Event> done_;
};

}  // namespace ddp::comm
