#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

/// Counts the program's heap allocations: replaces the global operator new, so include it in one source of a program.
/// What goes around operator new (malloc in C code) is not seen. A sanitizer brings an operator new of its own, so a
/// program that includes this is not for such a build.
namespace ddp::test {

inline std::atomic<std::int64_t>& heap_allocations() {
  static constinit std::atomic<std::int64_t> count{0};
  return count;
}

/// Those of the calling thread alone: threads that stand by (a group's watchdog) take a little when they start.
inline std::int64_t& own_heap_allocations() {
  static constinit thread_local std::int64_t count = 0;
  return count;
}

inline void* counted_allocation(std::size_t bytes, std::size_t alignment) {
  heap_allocations().fetch_add(1, std::memory_order_relaxed);
  ++own_heap_allocations();
  if (alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) return std::malloc(bytes == 0 ? 1 : bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

inline void* counted_or_throw(std::size_t bytes, std::size_t alignment) {
  void* pointer = counted_allocation(bytes, alignment);
  if (pointer == nullptr) throw std::bad_alloc();
  return pointer;
}

}  // namespace ddp::test

// The array forms call these. g++ cannot see that both sides are malloc and free.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif
void* operator new(std::size_t bytes) { return ddp::test::counted_or_throw(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return ddp::test::counted_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return ddp::test::counted_allocation(bytes, 1);
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return ddp::test::counted_allocation(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* pointer) noexcept { std::free(pointer); }
void operator delete(void* pointer, std::size_t) noexcept { std::free(pointer); }
void operator delete(void* pointer, std::align_val_t) noexcept { std::free(pointer); }
void operator delete(void* pointer, std::size_t, std::align_val_t) noexcept { std::free(pointer); }
