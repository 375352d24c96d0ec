#pragma once

#include <utility>

namespace ddp::core::cuda {

/// Owns a native handle (cublasLtHandle_t, cudnnHandle_t, ncclComm_t, ...) and frees it with `Destroy`,
/// whose result is dropped: a destructor cannot report it. Move only.
template <class Native, auto Destroy>
class Handle {
 public:
  Handle() = default;
  explicit Handle(Native native) : native_(native) {}
  Handle(Handle&& other) noexcept : native_(std::exchange(other.native_, Native{})) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(native_, other.native_);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (native_ != Native{}) static_cast<void>(Destroy(native_));
  }

  Native get() const { return native_; }
  /// The place that a create function writes to. Only while empty.
  Native* put() { return &native_; }
  explicit operator bool() const { return native_ != Native{}; }

 private:
  Native native_{};
};

}  // namespace ddp::core::cuda
