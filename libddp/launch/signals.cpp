#include "launch/signals.h"

#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ddp/core/error.h"

namespace ddp::launch {
namespace {

bool pipe_signal_pending() {
  sigset_t pending;
  return ::sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
}

bool is_ignored(int signal) {
  struct sigaction action{};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

SignalInbox::SignalInbox(bool listen) {
  sigset_t wanted;
  sigemptyset(&wanted);
  if (listen) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      // A blocked signal arrives even where it is ignored (nohup, background jobs of scripts).
      if (!is_ignored(signal)) sigaddset(&wanted, signal);
    }
    fd_ = FileDescriptor(::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC));
    DDP_CHECK(fd_.open(), IoError, "cannot listen to signals: ", std::strerror(errno));
  }
  sigaddset(&wanted, SIGPIPE);
  pipe_signal_was_pending_ = pipe_signal_pending();
  ::pthread_sigmask(SIG_BLOCK, &wanted, &previous_);
}

SignalInbox::~SignalInbox() {
  while (next()) {  // one more Ctrl-C while the last rank ended must not kill this process now
  }
  if (!pipe_signal_was_pending_ && pipe_signal_pending()) {
    sigset_t pipe_signal;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    const timespec no_wait{};
    ::sigtimedwait(&pipe_signal, nullptr, &no_wait);
  }
  ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

std::optional<int> SignalInbox::next() noexcept {
  if (!fd_.open()) return std::nullopt;
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace ddp::launch
