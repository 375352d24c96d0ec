#include "launch/guardian.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "ddp/core/error.h"
#include "launch/spawn.h"

namespace ddp::launch {
namespace {

constexpr pid_t kDone = 0;  // else: a group to watch, or its negative to forget it

void close_all_but_input() {
  if (::close_range(1, ~0U, 0) == 0) return;
  for (int fd = 1; fd < 65536; ++fd) ::close(fd);
}

// Only async-signal-safe calls: the launcher may have other threads.
[[noreturn]] void guard(int pipe) {
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::setsid();  // out of reach of what is sent to the launcher's group or terminal
  ::prctl(PR_SET_NAME, "ddp-guardian");
  ::dup2(pipe, STDIN_FILENO);
  close_all_but_input();  // or the launcher's port and pipes would stay open

  std::array<pid_t, kMaxRanks> groups{};
  for (;;) {
    pid_t message = kDone;
    const ssize_t got = ::read(STDIN_FILENO, &message, sizeof message);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof message) break;  // the launcher is gone
    if (message == kDone) ::_exit(0);
    for (pid_t& group : groups) {
      if (group == (message > 0 ? 0 : -message)) {
        group = message > 0 ? message : 0;
        break;
      }
    }
  }
  for (const pid_t group : groups) {
    if (group > 0) ::kill(-group, SIGKILL);
  }
  ::_exit(0);
}

}  // namespace

Guardian::Guardian() {
  Pipe pipe = make_pipe();
  const int read_end = pipe.read.get();
  pid_ = ::fork();
  DDP_CHECK(pid_ >= 0, IoError, "cannot start a process: ", std::strerror(errno));
  if (pid_ == 0) guard(read_end);
  pipe_ = std::move(pipe.write);
}

Guardian::~Guardian() {
  send(kDone);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guardian::watch(pid_t group) noexcept { send(group); }
void Guardian::forget(pid_t group) noexcept { send(-group); }

void Guardian::send(pid_t message) noexcept {
  while (::write(pipe_.get(), &message, sizeof message) < 0 && errno == EINTR) {
  }
}

}  // namespace ddp::launch
