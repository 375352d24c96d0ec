#pragma once

/// The thread-local switches of the library; the public guards are in the rooms that own the ideas.
namespace ddp::core {

// constinit: read without a check whether it has been initialised.
inline constinit thread_local bool t_grad_mode = true;

/// Whether operations of this thread are recorded for backward.
inline bool& grad_mode() noexcept { return t_grad_mode; }

}  // namespace ddp::core
