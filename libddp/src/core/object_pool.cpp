#include "core/object_pool.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#define DDP_NO_OBJECT_POOL 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DDP_NO_OBJECT_POOL 1
#endif
#endif

namespace ddp::core {

#ifdef DDP_NO_OBJECT_POOL

void* pool_allocate(std::size_t bytes) { return ::operator new(bytes); }
void pool_deallocate(void* pointer, std::size_t bytes) noexcept { ::operator delete(pointer, bytes); }

#else

namespace {

constexpr std::size_t kStep = 32;
constexpr std::size_t kClasses = 32;
constexpr std::size_t kLargest = kStep * kClasses;
constexpr std::size_t kBatch = 64;               // pieces that move between a thread and the shared list at a time
constexpr std::size_t kThreadBytes = 256 << 10;  // of one class, kept by a thread at most
constexpr std::size_t kSharedBytes = 4 << 20;    // likewise by the shared list

std::size_t class_of(std::size_t bytes) { return (std::max<std::size_t>(bytes, 1) - 1) / kStep; }
std::size_t class_bytes(std::size_t index) { return (index + 1) * kStep; }

/// What a free piece holds.
struct Piece {
  Piece* next;
};

struct List {
  Piece* head = nullptr;
  std::size_t count = 0;

  void push(Piece* piece) noexcept {
    piece->next = head;
    head = piece;
    ++count;
  }
  Piece* pop() noexcept {
    Piece* piece = head;
    head = piece->next;
    --count;
    return piece;
  }
  void move_to(List& other, std::size_t most) noexcept {
    for (; most > 0 && head != nullptr; --most) other.push(pop());
  }
  void free_all() noexcept {
    while (head != nullptr) ::operator delete(pop());
  }
};

using Lists = std::array<List, kClasses>;

struct Shared {
  std::mutex mutex;
  Lists lists;
};

/// Never destroyed: objects in statics may outlive any order of destruction we could choose.
Shared& shared() {
  static auto* instance = new Shared;
  return *instance;
}

// Plain data, so that a thread's objects may still be freed while its thread_locals are being destroyed.
struct Thread {
  Lists* lists = nullptr;
  bool over = false;  // the thread is ending: no lists any more
};
constinit thread_local Thread t_thread;

struct AtThreadEnd {
  ~AtThreadEnd() {
    t_thread.over = true;
    Lists* lists = t_thread.lists;
    t_thread.lists = nullptr;
    for (List& list : *lists) list.free_all();
    delete lists;
  }
};

/// The thread's lists, null when it is ending or there is no memory for them.
Lists* lists_of_thread() noexcept {
  if (t_thread.lists != nullptr || t_thread.over) return t_thread.lists;
  t_thread.lists = new (std::nothrow) Lists();
  if (t_thread.lists == nullptr) return nullptr;
  static thread_local AtThreadEnd at_end;
  static_cast<void>(at_end);
  return t_thread.lists;
}

// Whoever finds the shared list busy goes to the system instead of waiting.
void* refill(std::size_t index) {
  if (Lists* lists = lists_of_thread()) {
    List& own = (*lists)[index];
    const std::unique_lock lock(shared().mutex, std::try_to_lock);
    if (lock.owns_lock()) shared().lists[index].move_to(own, kBatch);
    if (own.head != nullptr) return own.pop();
  }
  return ::operator new(class_bytes(index));
}

void spill(List& own, std::size_t index) noexcept {
  List batch;
  own.move_to(batch, kBatch);
  {
    const std::unique_lock lock(shared().mutex, std::try_to_lock);
    List& list = shared().lists[index];
    if (lock.owns_lock() && (list.count + kBatch) * class_bytes(index) <= kSharedBytes) batch.move_to(list, kBatch);
  }
  batch.free_all();
}

}  // namespace

void* pool_allocate(std::size_t bytes) {
  if (bytes > kLargest) [[unlikely]] {
    return ::operator new(bytes);
  }
  const std::size_t index = class_of(bytes);
  Lists* lists = t_thread.lists;
  if (lists != nullptr && (*lists)[index].head != nullptr) [[likely]] {
    return (*lists)[index].pop();
  }
  return refill(index);
}

void pool_deallocate(void* pointer, std::size_t bytes) noexcept {
  if (pointer == nullptr) return;
  const std::size_t index = class_of(bytes);
  Lists* lists = bytes > kLargest ? nullptr : lists_of_thread();
  if (lists == nullptr) [[unlikely]] {
    ::operator delete(pointer);
    return;
  }
  List& own = (*lists)[index];
  own.push(new (pointer) Piece);
  if (own.count * class_bytes(index) > kThreadBytes) [[unlikely]] {
    spill(own, index);
  }
}

#endif

}  // namespace ddp::core
