#include <csignal>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "autograd/pass.h"
#include "core/thread_state.h"

namespace ddp::autograd {

namespace {

/// The thread that runs nodes of one device for passes called from elsewhere.
class Worker {
 public:
  Worker() {
    // Signals of the process are for the program's threads; the new thread inherits the mask.
    sigset_t blocked;
    sigset_t previous;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_SETMASK, &blocked, &previous);
    try {
      std::thread([this] { loop(); }).detach();
    } catch (...) {
      pthread_sigmask(SIG_SETMASK, &previous, nullptr);
      throw;
    }
    pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  }

  void add(Pass& pass, std::size_t lane) {
    {
      const std::lock_guard guard(mutex_);
      jobs_.emplace_back(&pass, lane);
    }
    ready_.notify_one();
  }

 private:
  void loop() {
    core::grad_mode() = false;
    for (;;) {
      std::unique_lock guard(mutex_);
      ready_.wait(guard, [this] { return !jobs_.empty(); });
      const auto [pass, lane] = jobs_.front();
      jobs_.erase(jobs_.begin());
      guard.unlock();
      pass->drain(lane);
    }
  }

  std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<std::pair<Pass*, std::size_t>> jobs_;  // the oldest first; more than one only when passes meet
};

/// Never destroyed: a worker idles until the process ends, also when `exit` is called from a hook.
struct Workers {
  std::mutex mutex;
  std::vector<std::pair<Device, std::unique_ptr<Worker>>> all;
};

Workers& workers() {
  static auto* instance = new Workers;
  return *instance;
}

}  // namespace

void wake_worker(Device device, Pass& pass, std::size_t lane) {
  Worker* worker = nullptr;
  {
    Workers& known = workers();
    const std::lock_guard guard(known.mutex);
    for (auto& [of, candidate] : known.all) {
      if (of == device) worker = candidate.get();
    }
    if (worker == nullptr) {
      known.all.emplace_back(device, std::make_unique<Worker>());
      worker = known.all.back().second.get();
    }
  }
  worker->add(pass, lane);
}

}  // namespace ddp::autograd
