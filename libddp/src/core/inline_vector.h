#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace ddp::core {

/// A list whose first N elements are kept inside it, so that a short one takes no memory. Elements do not throw when
/// they are moved or default-constructed.
template <class T, std::size_t N>
class InlineVector {
  static_assert(std::is_nothrow_move_constructible_v<T> && std::is_nothrow_default_constructible_v<T> && N > 0);

 public:
  InlineVector() noexcept = default;
  InlineVector(InlineVector&& other) noexcept { take(other); }
  InlineVector& operator=(InlineVector&& other) noexcept {
    if (this == &other) return *this;
    clear();
    free_memory();
    take(other);
    return *this;
  }
  InlineVector(const InlineVector&) = delete;
  InlineVector& operator=(const InlineVector&) = delete;
  ~InlineVector() {
    clear();
    free_memory();
  }

  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  T* data() noexcept { return is_inline() ? place() : memory_; }
  const T* data() const noexcept { return is_inline() ? place() : memory_; }
  T& operator[](std::size_t i) noexcept { return data()[i]; }
  const T& operator[](std::size_t i) const noexcept { return data()[i]; }
  T* begin() noexcept { return data(); }
  T* end() noexcept { return data() + size_; }
  const T* begin() const noexcept { return data(); }
  const T* end() const noexcept { return data() + size_; }

  T& push_back(T value) {
    if (size_ == capacity_) grow(2 * capacity_);
    return *std::construct_at(data() + size_++, std::move(value));
  }
  /// New elements are default-constructed. For a list that does not get shorter.
  void extend(std::size_t size) {
    if (size > capacity_) grow(size);
    while (size_ < size) std::construct_at(data() + size_++);
  }
  void clear() noexcept {
    std::destroy_n(data(), size_);
    size_ = 0;
  }

 private:
  bool is_inline() const noexcept { return memory_ == nullptr; }
  T* place() noexcept { return std::launder(reinterpret_cast<T*>(inline_)); }
  const T* place() const noexcept { return std::launder(reinterpret_cast<const T*>(inline_)); }

  void grow(std::size_t capacity) {
    T* memory = std::allocator<T>().allocate(capacity);
    std::uninitialized_move_n(data(), size_, memory);
    std::destroy_n(data(), size_);
    free_memory();
    memory_ = memory;
    capacity_ = capacity;
  }
  void free_memory() noexcept {
    if (memory_ != nullptr) std::allocator<T>().deallocate(memory_, capacity_);
    memory_ = nullptr;
    capacity_ = N;
  }
  // This one is empty and without memory; `other` is afterwards.
  void take(InlineVector& other) noexcept {
    if (other.is_inline()) {
      std::uninitialized_move_n(other.place(), other.size_, place());
      size_ = other.size_;
      other.clear();
      return;
    }
    memory_ = std::exchange(other.memory_, nullptr);
    capacity_ = std::exchange(other.capacity_, N);
    size_ = std::exchange(other.size_, 0);
  }

  T* memory_ = nullptr;  // null: the elements are inside
  std::size_t size_ = 0;
  std::size_t capacity_ = N;
  alignas(T) std::byte inline_[N * sizeof(T)];
};

}  // namespace ddp::core
