#include "ddp/core/precision.h"

#include <atomic>

#include "core/env.h"

namespace ddp {
namespace {

class Switch {
 public:
  explicit Switch(const char* variable) : on_(core::env_int(variable, 0, 1).value_or(0) != 0) {}
  void set(bool on) { on_.store(on, std::memory_order_relaxed); }
  bool get() const { return on_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> on_;
};

// Read when first asked for, so that a value that is not allowed throws where somebody can catch it.
Switch& tf32() {
  static Switch value("DDP_ALLOW_TF32");
  return value;
}
Switch& measuring() {
  static Switch value("DDP_AUTOTUNE");
  return value;
}

}  // namespace

void set_allow_tf32(bool allow) { tf32().set(allow); }
bool allow_tf32() { return tf32().get(); }
void set_autotune(bool measure) { measuring().set(measure); }
bool autotune() { return measuring().get(); }

}  // namespace ddp
