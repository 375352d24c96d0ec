#pragma once

#include <sys/types.h>

#include "launch/file_descriptor.h"

namespace ddp::launch {

/// A small process that outlives this one when this one is killed, and then kills the process groups of the
/// ranks. The ranks themselves die with the launcher by the kernel's doing; their children would not.
class Guardian {
 public:
  /// Throws IoError.
  Guardian();
  /// Ends and reaps it; groups still watched are left alone.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  void watch(pid_t group) noexcept;
  void forget(pid_t group) noexcept;

 private:
  void send(pid_t message) noexcept;
  pid_t pid_ = 0;
  FileDescriptor pipe_;
};

}  // namespace ddp::launch
