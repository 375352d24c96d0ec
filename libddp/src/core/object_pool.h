#pragma once

#include <cstddef>
#include <new>

/// Memory for the library's small, short-lived objects: tensors' bookkeeping and the nodes of the tape, of which a
/// training step makes and frees the same few hundred again and again. Freed pieces wait in lists of the freeing
/// thread, so that a steady step neither calls the system's allocator nor takes a lock. A list that grows too long, as
/// where one thread makes what another frees, gives a batch to a shared list, from which threads that run short take
/// it.
///
/// With the address sanitizer everything goes to the system, so that it sees each object's life.
namespace ddp::core {

/// Memory of `bytes` bytes with the alignment of operator new. Throws std::bad_alloc.
void* pool_allocate(std::size_t bytes);
/// Gives it back, on any thread; `bytes` as at allocation.
void pool_deallocate(void* pointer, std::size_t bytes) noexcept;

/// Base of classes whose objects live there. What derives from them may be of any size, but its destructor is virtual.
class Pooled {
 public:
  static void* operator new(std::size_t bytes) { return pool_allocate(bytes); }
  static void operator delete(void* pointer, std::size_t bytes) noexcept { pool_deallocate(pointer, bytes); }
  // Aligned beyond operator new: not from the pool.
  static void* operator new(std::size_t bytes, std::align_val_t alignment) { return ::operator new(bytes, alignment); }
  static void operator delete(void* pointer, std::size_t bytes, std::align_val_t alignment) noexcept {
    ::operator delete(pointer, bytes, alignment);
  }
  static void* operator new(std::size_t, void* place) noexcept { return place; }
};

}  // namespace ddp::core
