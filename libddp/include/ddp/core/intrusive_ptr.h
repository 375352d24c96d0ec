#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

/// Reference counting inside the object: one pointer wide, one allocation, no control block.
namespace ddp {

class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  virtual ~RefCounted() = default;

  std::uint32_t use_count() const noexcept { return count_.load(std::memory_order_acquire); }

 private:
  template <class T>
  friend class IntrusivePtr;
  void add_reference() const noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  /// True when it was the last one. The only owner need not write: nobody else could take part.
  bool drop_reference() const noexcept {
    return count_.load(std::memory_order_acquire) == 1 || count_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  mutable std::atomic<std::uint32_t> count_{0};
};

/// Shared owner of a RefCounted object. Thread safe like std::shared_ptr: the count is atomic, one
/// IntrusivePtr object is not to be changed by two threads at once.
template <class T>
class IntrusivePtr {
 public:
  constexpr IntrusivePtr() noexcept = default;
  constexpr IntrusivePtr(std::nullptr_t) noexcept {}  // NOLINT(google-explicit-constructor)
  explicit IntrusivePtr(T* object) noexcept : object_(object) { retain(); }
  IntrusivePtr(const IntrusivePtr& other) noexcept : object_(other.object_) { retain(); }
  IntrusivePtr(IntrusivePtr&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  template <class U>
    requires std::is_convertible_v<U*, T*>
  IntrusivePtr(const IntrusivePtr<U>& other) noexcept : object_(other.get()) {  // NOLINT(google-explicit-constructor)
    retain();
  }
  template <class U>
    requires std::is_convertible_v<U*, T*>
  IntrusivePtr(IntrusivePtr<U>&& other) noexcept : object_(other.release()) {}  // NOLINT(google-explicit-constructor)
  IntrusivePtr& operator=(IntrusivePtr other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~IntrusivePtr() { drop(); }

  T* get() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  T* operator->() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  /// Gives up the reference without dropping it.
  T* release() noexcept { return std::exchange(object_, nullptr); }
  /// Drops the reference. Where it was the last one, the object is not destroyed but returned, for the caller to
  /// delete; else null.
  [[nodiscard]] T* release_last() noexcept {
    T* object = release();
    return object != nullptr && object->drop_reference() ? object : nullptr;
  }
  friend bool operator==(const IntrusivePtr& a, const IntrusivePtr& b) noexcept { return a.object_ == b.object_; }

 private:
  void retain() const noexcept {
    if (object_ != nullptr) object_->add_reference();
  }
  void drop() noexcept {
    if (object_ != nullptr && object_->drop_reference()) delete object_;
  }
  T* object_ = nullptr;
};

template <class T, class... Args>
IntrusivePtr<T> make_intrusive(Args&&... args) {
  return IntrusivePtr<T>(new T(std::forward<Args>(args)...));
}

}  // namespace ddp
