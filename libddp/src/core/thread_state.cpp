#include "core/thread_state.h"

namespace ddp::core {

bool& grad_mode() noexcept {
  static thread_local bool enabled = true;
  return enabled;
}

}  // namespace ddp::core
