#pragma once

#include <cstddef>

#include "ddp/core/stream.h"

/// Caching, per-device memory. Blocks freed are kept and handed out again, in stream order: a block
/// freed on a stream may be given to that stream at once, since later work of it runs after. Thread safe.
namespace ddp::core {

/// A block of at least `bytes` bytes, 64-byte aligned (256 on CUDA), for use on `stream`. `bytes` 0 gives
/// null. Throws OutOfMemory with bytes asked for, in use and reserved.
void* allocate(std::size_t bytes, StreamView stream);
/// Gives the block back. `stream` is the one it was allocated for; never blocks, never throws.
void deallocate(void* pointer, std::size_t bytes, StreamView stream) noexcept;

}  // namespace ddp::core
