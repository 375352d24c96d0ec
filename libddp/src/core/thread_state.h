#pragma once

/// The thread-local switches of the library; the public guards are in the rooms that own the ideas.
namespace ddp::core {

/// Whether operations of this thread are recorded for backward.
bool& grad_mode() noexcept;

}  // namespace ddp::core
