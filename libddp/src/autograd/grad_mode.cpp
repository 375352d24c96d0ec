#include "ddp/autograd/grad_mode.h"

#include <utility>

#include "core/thread_state.h"

namespace ddp {

bool grad_mode_enabled() { return core::grad_mode(); }

NoGradGuard::NoGradGuard() : previous_(std::exchange(core::grad_mode(), false)) {}
NoGradGuard::~NoGradGuard() { core::grad_mode() = previous_; }

GradModeGuard::GradModeGuard(bool enabled) : previous_(std::exchange(core::grad_mode(), enabled)) {}
GradModeGuard::~GradModeGuard() { core::grad_mode() = previous_; }

}  // namespace ddp
