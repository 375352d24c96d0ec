#pragma once

#include <atomic>
#include <thread>

namespace ddp::core {

/// For sections of some nanoseconds that hardly ever meet: half the cost of a mutex. Whoever does not get it soon
/// gives its core away, since the holder may have lost its own.
class SpinLock {
 public:
  void lock() noexcept {
    for (int tries = 0; held_.exchange(true, std::memory_order_acquire); ++tries) {
      if (tries > 32) std::this_thread::yield();
    }
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

}  // namespace ddp::core
