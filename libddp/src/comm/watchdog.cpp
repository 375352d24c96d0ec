#include "comm/watchdog.h"

#include <pthread.h>

#include <algorithm>
#include <csignal>

namespace ddp::comm {

struct SignalBlock::Saved {
  sigset_t set;
};

SignalBlock::SignalBlock() : saved_(std::make_unique<Saved>()) {
  sigset_t blocked;
  sigfillset(&blocked);
  // Faults of the thread itself must stay deadly where they happen.
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&blocked, signal);
  pthread_sigmask(SIG_BLOCK, &blocked, &saved_->set);
}

SignalBlock::~SignalBlock() { pthread_sigmask(SIG_SETMASK, &saved_->set, nullptr); }

std::thread start_library_thread(std::function<void()> body) {
  const SignalBlock block;
  return std::thread(std::move(body));
}

std::shared_ptr<Watchdog> Watchdog::instance() {
  static std::mutex mutex;
  static std::weak_ptr<Watchdog> current;
  const std::lock_guard lock(mutex);
  auto watchdog = current.lock();
  if (!watchdog) {
    // Its own threads hold it for a moment at times. One that turns out to be the last holder cannot wait for itself.
    watchdog = std::shared_ptr<Watchdog>(new Watchdog, [](Watchdog* last) {
      if (last->on_own_thread()) {
        start_library_thread([last] { delete last; }).detach();
      } else {
        delete last;
      }
    });
    current = watchdog;
  }
  return watchdog;
}

Watchdog::Watchdog() {
  watcher_ = start_library_thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    condition_.notify_all();
  }
  watcher_.join();
  {
    const std::lock_guard lock(task_mutex_);
    tasks_stopping_ = true;
    task_condition_.notify_all();
  }
  if (talker_.joinable()) talker_.join();
}

bool Watchdog::on_own_thread() const {
  const auto self = std::this_thread::get_id();
  return self == watcher_.get_id() || self == talker_.get_id();
}

void Watchdog::add(const std::shared_ptr<Watched>& watched) {
  const std::lock_guard lock(mutex_);
  watched_.push_back(watched);
}

void Watchdog::remove(const Watched* watched) {
  std::shared_ptr<Watched> last;  // dropped outside the lock
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(watched_, [&](const auto& entry) { return entry.get() == watched; });
  if (found == watched_.end()) return;
  last = std::move(*found);
  watched_.erase(found);
}

void Watchdog::wake() noexcept {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  condition_.notify_all();
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    woken_ = false;
    auto next = Clock::time_point::max();
    const auto now = Clock::now();
    {
      auto groups = watched_;
      lock.unlock();
      for (const auto& group : groups) next = std::min(next, group->poll(now));
      groups.clear();  // not kept alive while this thread sleeps
      lock.lock();
    }
    const auto roused = [this] { return stopping_ || woken_; };
    // A year: a wait until time_point::max() overflows in some C libraries.
    condition_.wait_until(lock, std::min(next, now + std::chrono::hours(24 * 365)), roused);
  }
}

void Watchdog::talk(std::function<void()> task) {
  const std::lock_guard lock(task_mutex_);
  tasks_.push_back(std::move(task));
  if (!talker_.joinable()) {
    talker_ = start_library_thread([this] { run_tasks(); });
  }
  task_condition_.notify_all();
}

void Watchdog::run_tasks() {
  std::unique_lock lock(task_mutex_);
  while (true) {
    task_condition_.wait(lock, [this] { return tasks_stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace ddp::comm
