#include "core/observer.h"

#include <atomic>
#include <chrono>

namespace ddp::core {
namespace {

constinit std::atomic<const Observer*> g_observer{nullptr};
constinit thread_local int t_blocking_depth = 0;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

const Observer* observer() noexcept { return g_observer.load(std::memory_order_acquire); }
void set_observer(const Observer* observer) noexcept { g_observer.store(observer, std::memory_order_release); }

BlockingScope::BlockingScope(const char* what, Device device, std::source_location where) noexcept
    : what_(what), device_(device), where_(where) {
  if (t_blocking_depth++ > 0) return;
  const Observer* listener = observer();
  if (listener != nullptr && listener->blocking_call != nullptr) start_ns_ = now_ns();
}

BlockingScope::~BlockingScope() {
  --t_blocking_depth;
  if (start_ns_ == 0) return;
  const Observer* listener = observer();
  if (listener != nullptr && listener->blocking_call != nullptr) {
    listener->blocking_call(what_, device_, now_ns() - start_ns_, where_);
  }
}

}  // namespace ddp::core
