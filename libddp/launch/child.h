#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "launch/file_descriptor.h"

namespace ddp::launch {

/// What a rank is started with.
struct ChildPlan {
  int rank = 0;
  std::string program;                   ///< path
  std::vector<std::string> arguments;    ///< the first is the program's name
  std::vector<std::string> environment;  ///< "NAME=value"
  std::vector<int> cpus;                 ///< empty: not bound
  sigset_t signal_mask{};
};

struct Child {
  pid_t pid = 0;
  FileDescriptor output;
  FileDescriptor errors;
  FileDescriptor pidfd;  ///< not open on kernels without it
};

/// The file that a command name means: itself when it has a slash, else the first executable in PATH.
/// Throws CannotStart.
std::string find_program(const std::string& name);

/// Starts the program as leader of a process group, to be killed when the calling thread ends. Returns when it
/// runs. Throws CannotStart, or IoError when there is no process to be had.
Child start_child(const ChildPlan& plan);

}  // namespace ddp::launch
