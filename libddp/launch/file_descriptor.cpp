#include "launch/file_descriptor.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "ddp/core/error.h"

namespace ddp::launch {
namespace {

// With a standard stream closed in this process a new descriptor may be 0, 1 or 2, and a child would
// overwrite it while it sets up its own streams.
FileDescriptor above_standard_streams(FileDescriptor fd) {
  if (fd.get() > STDERR_FILENO) return fd;
  FileDescriptor moved(::fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  DDP_CHECK(moved.open(), IoError, "cannot duplicate a file descriptor: ", std::strerror(errno));
  return moved;
}

}  // namespace

Pipe make_pipe() {
  int ends[2];
  DDP_CHECK(::pipe2(ends, O_CLOEXEC) == 0, IoError, "cannot make a pipe: ", std::strerror(errno));
  FileDescriptor read(ends[0]);
  FileDescriptor write(ends[1]);
  return {above_standard_streams(std::move(read)), above_standard_streams(std::move(write))};
}

}  // namespace ddp::launch
