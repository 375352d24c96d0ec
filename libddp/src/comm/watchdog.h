#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/async_work.h"

namespace ddp::comm {

/// What the watchdog looks after.
class Watched {
 public:
  virtual ~Watched() = default;
  /// Fails what is past its deadline. Returns when to look again; time_point::max() when nothing is outstanding.
  /// Must not block.
  virtual Clock::time_point poll(Clock::time_point now) noexcept = 0;
};

/// Serves all groups of the process: one thread looks at deadlines; a second one, started when first needed,
/// does for them what may block (asking a store about peers). Lives as long as somebody holds it.
class Watchdog {
 public:
  /// The process's watchdog, made when there is none.
  static std::shared_ptr<Watchdog> instance();
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void add(const std::shared_ptr<Watched>& watched);
  void remove(const Watched* watched);
  /// Something became outstanding in a group that had nothing.
  void wake() noexcept;
  /// Runs `task` on the talking thread, in order. Tasks still queued when the watchdog goes are run before it ends.
  void talk(std::function<void()> task);

 private:
  bool on_own_thread() const;
  void watch();
  void run_tasks();

  std::mutex mutex_;
  std::condition_variable condition_;
  std::vector<std::shared_ptr<Watched>> watched_;
  bool stopping_ = false;
  bool woken_ = false;

  std::mutex task_mutex_;
  std::condition_variable task_condition_;
  std::deque<std::function<void()>> tasks_;
  bool tasks_stopping_ = false;

  std::thread talker_;
  std::thread watcher_;
};

/// Starts a thread that receives no asynchronous signal and no SIGPIPE, so that the application's handlers run
/// on its own threads and a peer's death is an error code.
std::thread start_library_thread(std::function<void()> body);

/// Blocks all signals for the calling thread until the end of the scope; threads made inside inherit that.
class SignalBlock {
 public:
  SignalBlock();
  ~SignalBlock();
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

}  // namespace ddp::comm
