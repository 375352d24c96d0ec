#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "ddp/core/stream.h"

/// Caching, per-device memory. Blocks freed are kept and handed out again, in stream order: a block
/// freed on a stream may be given to that stream at once, since later work of it runs after. Thread safe.
/// The steady path takes one lock per (device, stream) and no heap memory.
namespace ddp::core {

/// A block of at least `bytes` bytes, 64-byte aligned (256 on CUDA), for use on `stream`. `bytes` 0 gives
/// null. Throws OutOfMemory with bytes asked for, in use and reserved.
void* allocate(std::size_t bytes, StreamView stream);
/// Gives the block back. `stream` is the one it was allocated for; never blocks, never throws.
void deallocate(void* pointer, std::size_t bytes, StreamView stream) noexcept;
/// The same for a block that work queued so far on other streams, `users`, still reads or writes: who gets the block
/// next waits for them in stream order. The host does not wait, unless the event that this takes cannot be had.
void deallocate(void* pointer, std::size_t bytes, StreamView stream, std::span<const StreamView> users) noexcept;

/// Whether there is page-locked host memory: in a build with CUDA, on a machine with a GPU.
bool can_pin() noexcept;
/// Page-locked host memory from a cache of its own, 64-byte aligned. Throws OutOfMemory, and NotAvailable where there
/// is none.
void* allocate_pinned(std::size_t bytes);
/// Gives the block back. It is handed out again when what is queued on the streams `users` by now is done. Never
/// blocks, as above.
void deallocate_pinned(void* pointer, std::size_t bytes, std::span<const StreamView> users) noexcept;

/// How CUDA memory is handed out, from the environment's DDP_CUDA_ALLOCATOR: `caching` (also when it is unset or
/// empty), or `plain`: every block is a cudaMalloc of exactly its bytes and is freed at once, so that compute-sanitizer
/// sees what goes past its end. Plain blocks the host at every free.
enum class AllocatorMode : std::uint8_t { caching, plain };
/// Throws InvalidArgument that names the variable and quotes its value.
AllocatorMode parse_allocator_mode(const std::optional<std::string>& text);

/// No cudaMalloc, cudaFree or their host kin may come between the launches of one multi-device group: they may wait
/// for one device's work, which waits for a launch on another device that has not been made. In this scope a request
/// that would have to go to the system throws InvalidArgument naming `what` (a literal), and memory that would go back
/// to it does so at the end of the scope. Cached blocks come and go as ever. Requests of other threads wait for the end
/// of the scope, though no longer than a tenth of a second. Scopes of one thread may nest.
class NoDeviceAllocation {
 public:
  explicit NoDeviceAllocation(const char* what);
  ~NoDeviceAllocation();
  NoDeviceAllocation(const NoDeviceAllocation&) = delete;
  NoDeviceAllocation& operator=(const NoDeviceAllocation&) = delete;

 private:
  const char* previous_;
};

}  // namespace ddp::core
