#pragma once

#include <signal.h>

#include <optional>

#include "launch/file_descriptor.h"

namespace ddp::launch {

/// Takes signals as messages, without handlers: they are blocked in this thread while it lives. SIGPIPE is
/// blocked too, so that a closed output is an error code.
class SignalInbox {
 public:
  /// With `listen` SIGINT, SIGTERM and SIGHUP arrive here, except those that this process ignores. Throws IoError.
  explicit SignalInbox(bool listen);
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  /// To poll; -1 when not listening.
  int fd() const { return fd_.get(); }
  std::optional<int> next() noexcept;
  /// The mask from before, for children.
  const sigset_t& previous_mask() const { return previous_; }

 private:
  sigset_t previous_{};
  bool pipe_signal_was_pending_ = false;
  FileDescriptor fd_;
};

}  // namespace ddp::launch
