#include "launch/supervisor.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "launch/summary.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kKeptErrorLines = 20;
constexpr auto kNever = std::chrono::steady_clock::time_point::max();

// How long to wait for more output once all ranks have ended, and for a reader of ours that takes nothing.
constexpr std::chrono::seconds kLastOutputTime{2};
constexpr std::chrono::seconds kSlowReaderTime{5};

}  // namespace

Supervisor::Supervisor(const SpawnOptions& options, SignalInbox& signals)
    : options_(options), signals_(signals), ends_(::epoll_create1(EPOLL_CLOEXEC)) {
  DDP_CHECK(ends_.open(), IoError, "cannot make an epoll descriptor: ", std::strerror(errno));
  if (options.time_limit.count() > 0) time_limit_ = started_ + options.time_limit;
  ranks_.reserve(static_cast<std::size_t>(options.nproc));
}

Supervisor::~Supervisor() {
  for (Rank& rank : ranks_) {
    if (!rank.running) continue;
    ::kill(-rank.child.pid, SIGKILL);
    while (::waitpid(rank.child.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    guardian_.forget(rank.child.pid);
  }
}

void Supervisor::note(std::string_view line) {
  if (options_.on_note) {
    options_.on_note(line);
  } else {
    queues_[1].add("ddp run: ", line);
  }
}

void Supervisor::start(const ChildPlan& plan) {
  Rank rank;
  rank.child = start_child(plan);
  guardian_.watch(rank.child.pid);
  rank.result.rank = plan.rank;
  rank.result.pid = rank.child.pid;
  rank.streams[0].fd = std::move(rank.child.output);
  rank.streams[1].fd = std::move(rank.child.errors);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = ranks_.size();
  if (!rank.child.pidfd.open() || ::epoll_ctl(ends_.get(), EPOLL_CTL_ADD, rank.child.pidfd.get(), &event) != 0) {
    have_pidfds_ = false;
  }
  ranks_.push_back(std::move(rank));
}

RunResult Supervisor::run() {
  while (any_running()) poll_once();
  read_the_rest();
  for (Rank& rank : ranks_) {
    for (const auto which : {OutputStream::standard, OutputStream::error}) {
      Stream& stream = rank.streams[static_cast<int>(which)];
      stream.lines.finish([&](std::string_view line) { deliver(rank, which, line); });
      stream.fd.reset();
    }
  }
  flush();
  return result();
}

bool Supervisor::any_running() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running; });
}

bool Supervisor::any_open() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.streams[0].fd.open() || rank.streams[1].fd.open(); });
}

int Supervisor::poll_milliseconds() const {
  // Without pidfds an end has to be looked for.
  const auto longest = std::chrono::milliseconds(have_pidfds_ ? 1000 : 20);
  const auto now = Clock::now();
  auto next = now + longest;
  for (const auto deadline : {settle_deadline_, kill_deadline_, time_limit_}) next = std::min(next, deadline);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now);
  return static_cast<int>(std::max<std::int64_t>(0, left.count()));
}

void Supervisor::poll_once() {
  std::vector<pollfd> fds;
  fds.push_back({signals_.fd(), POLLIN, 0});  // a negative descriptor is skipped
  fds.push_back({ends_.get(), POLLIN, 0});
  for (const OutputQueue& queue : queues_) fds.push_back({queue.empty() ? -1 : queue.fd(), POLLOUT, 0});
  const std::size_t first_stream = fds.size();
  for (const Rank& rank : ranks_) {
    for (int i = 0; i < 2; ++i) fds.push_back({queues_[i].full() ? -1 : rank.streams[i].fd.get(), POLLIN, 0});
  }
  if (::poll(fds.data(), fds.size(), poll_milliseconds()) < 0 && errno != EINTR) {
    detail::fail<IoError>("cannot wait for the ranks: ", std::strerror(errno));
  }
  take_signals();
  for (std::size_t i = 0; i < 2; ++i) {
    if (fds[2 + i].revents != 0) write_queue(static_cast<int>(i));
  }
  for (std::size_t i = first_stream; i < fds.size(); ++i) {
    const std::size_t stream = i - first_stream;
    if (fds[i].revents != 0) read_stream(ranks_[stream / 2], static_cast<OutputStream>(stream % 2));
  }
  take_ends();
  check_deadlines();
}

void Supervisor::take_signals() {
  while (const auto signal = signals_.next()) {
    if (stopped_by_ == 0) {
      stopped_by_ = *signal;
      note(concat("got ", signal_name(*signal), ", passing it on to the ranks; once more ends them at once"));
      signal_all(*signal);
      kill_deadline_ = std::min(kill_deadline_, Clock::now() + options_.grace);
    } else {
      signal_all(SIGKILL);
    }
  }
}

void Supervisor::take_ends() {
  if (have_pidfds_) {
    epoll_event events[64];
    const int count = ::epoll_wait(ends_.get(), events, 64, 0);
    for (int i = 0; i < count; ++i) take_end(ranks_[static_cast<std::size_t>(events[i].data.u64)]);
    return;
  }
  for (Rank& rank : ranks_) take_end(rank);
}

void Supervisor::take_end(Rank& rank) {
  if (!rank.running) return;
  const pid_t pid = rank.child.pid;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
  // Before it is reaped, as its number may be given to somebody else afterwards.
  ::kill(-pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  guardian_.forget(pid);
  rank.running = false;
  rank.child.pidfd.reset();

  RankResult& result = rank.result;
  result.seconds = std::chrono::duration<double>(Clock::now() - started_).count();
  result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  result.exit_code = WIFSIGNALED(status) ? 128 + result.signal : WEXITSTATUS(status);
  if (!result.failed()) return;
  failures_.push_back(result.rank);
  if (options_.end_others && settle_deadline_ == kNever && kill_deadline_ == kNever) {
    settle_deadline_ = Clock::now() + options_.settle;
  }
}

void Supervisor::read_stream(Rank& rank, OutputStream which) {
  Stream& stream = rank.streams[static_cast<int>(which)];
  char buffer[16 * 1024];
  const ssize_t got = ::read(stream.fd.get(), buffer, sizeof buffer);
  if (got > 0) {
    stream.lines.feed({buffer, static_cast<std::size_t>(got)},
                      [&](std::string_view line) { deliver(rank, which, line); });
  } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
    stream.lines.finish([&](std::string_view line) { deliver(rank, which, line); });
    stream.fd.reset();
  }
}

void Supervisor::deliver(Rank& rank, OutputStream which, std::string_view line) {
  if (which == OutputStream::error) {
    rank.last_errors.emplace_back(line);
    if (rank.last_errors.size() > kKeptErrorLines) rank.last_errors.pop_front();
  }
  if (options_.on_line) {
    options_.on_line(rank.result.rank, which, line);
  } else {
    queues_[static_cast<int>(which)].add(concat("[rank ", rank.result.rank, "] "), line);
  }
}

void Supervisor::check_deadlines() {
  const auto now = Clock::now();
  if (now >= time_limit_) {
    time_limit_ = kNever;
    timed_out_ = true;
    signal_all(SIGKILL);
  }
  if (now >= settle_deadline_) {
    settle_deadline_ = kNever;
    kill_deadline_ = std::min(kill_deadline_, now + options_.grace);
    signal_all(SIGTERM);
  }
  if (now >= kill_deadline_) {
    kill_deadline_ = kNever;
    signal_all(SIGKILL);
  }
}

void Supervisor::signal_all(int signal) {
  for (Rank& rank : ranks_) {
    if (!rank.running) continue;
    rank.result.ended_by_launcher = signal;
    ::kill(-rank.child.pid, signal);
  }
}

void Supervisor::write_queue(int index) {
  if (queues_[index].write_some()) last_written_ = Clock::now();
}

// Bounded, since children of ranks that left their process group may hold the pipes for ever.
void Supervisor::read_the_rest() {
  auto deadline = Clock::now() + kLastOutputTime;
  last_written_ = Clock::now();
  while (any_open() && Clock::now() < deadline) {
    poll_once();
    if (queues_[0].full() || queues_[1].full()) deadline = std::max(deadline, last_written_ + kSlowReaderTime);
  }
}

void Supervisor::flush() {
  last_written_ = Clock::now();
  while ((!queues_[0].empty() || !queues_[1].empty()) && Clock::now() < last_written_ + kSlowReaderTime) {
    pollfd fds[2];
    for (int i = 0; i < 2; ++i) fds[i] = {queues_[i].empty() ? -1 : queues_[i].fd(), POLLOUT, 0};
    if (::poll(fds, 2, 100) < 0 && errno != EINTR) return;
    for (int i = 0; i < 2; ++i) {
      if (fds[i].revents != 0) write_queue(i);
    }
  }
}

RunResult Supervisor::result() const {
  RunResult run;
  run.stopped_by = stopped_by_;
  run.timed_out = timed_out_;
  for (const Rank& rank : ranks_) {
    run.ranks.push_back(rank.result);
    run.ranks.back().last_errors.assign(rank.last_errors.begin(), rank.last_errors.end());
  }
  run.first_failure = find_first_failure(run.ranks, failures_);
  if (run.first_failure) {
    run.exit_code = run.ranks[static_cast<std::size_t>(*run.first_failure)].exit_code;
  } else if (timed_out_) {
    run.exit_code = 124;
  } else if (stopped_by_ != 0) {
    run.exit_code = 128 + stopped_by_;
  }
  run.summary = summarize(run);
  return run;
}

}  // namespace ddp::launch
