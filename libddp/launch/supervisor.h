#pragma once

#include <chrono>
#include <deque>
#include <string>
#include <vector>

#include "launch/child.h"
#include "launch/guardian.h"
#include "launch/output.h"
#include "launch/signals.h"
#include "launch/spawn.h"

namespace ddp::launch {

/// Watches the ranks of one run: their output, their ends, signals and deadlines. The destructor kills and
/// reaps what still runs.
class Supervisor {
 public:
  Supervisor(const SpawnOptions& options, SignalInbox& signals);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// A line of the launcher's own.
  void note(std::string_view line);
  /// Starts a rank; in order of rank.
  void start(const ChildPlan& plan);
  /// Returns when all ranks have ended and all output is passed on.
  RunResult run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Stream {
    FileDescriptor fd;
    LineSplitter lines;
  };
  struct Rank {
    Child child;
    Stream streams[2];  // by OutputStream
    std::deque<std::string> last_errors;
    bool running = true;
    RankResult result;
  };

  bool any_running() const;
  bool any_open() const;
  void poll_once();
  int poll_milliseconds() const;
  void take_signals();
  void take_ends();
  void take_end(Rank& rank);
  void read_stream(Rank& rank, OutputStream which);
  void deliver(Rank& rank, OutputStream which, std::string_view line);
  void check_deadlines();
  void signal_all(int signal);
  void write_queue(int index);
  void read_the_rest();
  void flush();
  RunResult result() const;

  const SpawnOptions& options_;
  SignalInbox& signals_;
  Guardian guardian_;
  FileDescriptor ends_;  // epoll of pidfds: reports in the order in which the ranks ended
  bool have_pidfds_ = true;
  std::vector<Rank> ranks_;
  OutputQueue queues_[2] = {OutputQueue(1), OutputQueue(2)};
  std::vector<int> failures_;
  const Clock::time_point started_ = Clock::now();
  // max(): not set.
  Clock::time_point settle_deadline_ = Clock::time_point::max();
  Clock::time_point kill_deadline_ = Clock::time_point::max();
  Clock::time_point time_limit_ = Clock::time_point::max();
  Clock::time_point last_written_ = started_;
  int stopped_by_ = 0;
  bool timed_out_ = false;
};

}  // namespace ddp::launch
