#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "ddp/core/device.h"
#include "ddp/core/dtype.h"
#include "ddp/core/intrusive_ptr.h"
#include "ddp/core/stream.h"
#include "ddp/tensor/dims.h"

namespace ddp {

class TensorImpl;
// Counting goes through the library, because TensorImpl is complete only there.
template <>
void IntrusivePtr<TensorImpl>::retain() const noexcept;
template <>
void IntrusivePtr<TensorImpl>::drop() noexcept;

/// What a new tensor is made of.
struct TensorOptions {
  DType dtype = DType::float32;
  Device device = Device::cpu();
  /// CPU memory that devices copy from and to without blocking the host (page-locked). Ordinary memory in a build
  /// without CUDA and on a machine without a GPU.
  bool pinned = false;
};

/// A handle to a strided, n-dimensional array with an optional place in the autograd graph. Copying a
/// Tensor copies the handle, not the numbers. Functions of `ddp/autograd/functions.h` (matmul, relu,
/// reshape, ...) take and return Tensors and are recorded for backward; the members here are not.
///
/// Operations run on the calling thread's current stream of the tensor's device and do not block the
/// host unless said. One Tensor may be read by many threads; changing it needs outside locking.
class Tensor {
 public:
  /// An undefined tensor: no sizes, no memory.
  Tensor() = default;
  explicit Tensor(IntrusivePtr<TensorImpl> impl) : impl_(std::move(impl)) {}

  bool defined() const { return static_cast<bool>(impl_); }
  explicit operator bool() const { return defined(); }

  // --- what it is; each throws InvalidArgument on an undefined tensor ---
  const Dims& sizes() const;
  const Dims& strides() const;                ///< in elements
  std::int64_t size(std::int64_t dim) const;  ///< negative counts from the back
  std::int64_t dim() const { return static_cast<std::int64_t>(sizes().size()); }
  std::int64_t numel() const;
  std::int64_t nbytes() const { return numel() * static_cast<std::int64_t>(size_of(dtype())); }
  DType dtype() const;
  Device device() const;
  /// For a tensor like this one, though not pinned.
  TensorOptions options() const { return {dtype(), device()}; }
  /// True in page-locked CPU memory, the library's or somebody else's.
  bool is_pinned() const;
  bool is_contiguous() const;
  std::int64_t storage_offset() const;  ///< in elements
  /// True when both look at the same storage.
  bool shares_storage_with(const Tensor& other) const;
  /// True when both are the same handle target (same sizes, same autograd place).
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }

  // --- the numbers ---
  /// First element's address (device memory for CUDA). Null for zero elements is possible.
  void* data() const;
  /// Says that work queued on `stream` uses the memory, which was taken for another stream or is pinned: after the last
  /// handle is gone, who gets the memory next waits for that work in stream order. Operations on the current stream,
  /// copies from and to pinned memory, and collectives need no such word.
  void used_on(StreamView stream) const;
  /// The same, typed. Throws InvalidArgument when T is not the element type.
  template <class T>
  T* data_ptr() const {
    check_dtype(dtype_of<T>);
    return static_cast<T*>(data());
  }
  /// The one element as T. Blocks the host on CUDA. Throws InvalidArgument unless numel() is 1.
  template <class T>
  T item(std::source_location where = std::source_location::current()) const;
  /// All elements in row-major order, converted to T. Blocks the host on CUDA.
  template <class T>
  std::vector<T> to_vector(std::source_location where = std::source_location::current()) const;
  /// Sizes, dtype, device and up to a few hundred elements, for people.
  std::string to_string() const;

  // --- changing it in place: not recorded by autograd. Each throws AutogradError when grad mode is on
  // and the tensor requires grad, and raises the version that saved tensors are checked against. ---
  Tensor& fill_(double value);
  Tensor& zero_();
  /// Copies with conversion of dtype and device; `source` is broadcast to this one's sizes. Between a GPU and CPU
  /// memory that is not pinned it blocks the host. Pinned memory may be read on the host (written, if it was the
  /// source) when the GPU's current stream has passed the copy.
  Tensor& copy_(const Tensor& source, std::source_location where = std::source_location::current());
  Tensor& add_(const Tensor& other, double alpha = 1.0);  ///< this += alpha * other (broadcast)
  Tensor& mul_(double factor);
  Tensor& mul_(const Tensor& other);

  // --- autograd ---
  bool requires_grad() const;
  /// Only for leaves of floating-point dtype; else throws AutogradError. Returns this tensor.
  Tensor& set_requires_grad(bool value = true);
  /// True when no recorded function made it.
  bool is_leaf() const;
  /// The gradient of a leaf; undefined before the first backward and after `zero_grad`. After a
  /// synchronised DDP backward this is the mean over ranks and aliases the bucket. A leaf's gradient is
  /// kept, a non-leaf has none.
  Tensor grad() const;
  /// Sets the gradient (same sizes, dtype and device), or makes it undefined. A gradient that has a place
  /// in a bucket is copied there.
  void set_grad(const Tensor& gradient);
  /// Marks the gradient undefined and keeps its memory for the next backward.
  void zero_grad();
  /// Runs backward from this tensor (defined in the autograd room). `gradient` defaults to 1 and may only
  /// be left out for one element. Without `retain_graph` the graph can be used once. Throws AutogradError.
  /// Returns when every gradient is complete in stream order; with DDP on a CPU group also when all sums
  /// have arrived.
  void backward(const Tensor& gradient = {}, bool retain_graph = false,
                std::source_location where = std::source_location::current()) const;
  /// The same numbers, cut from the graph.
  Tensor detach() const;
  /// How often this tensor's storage has been changed in place.
  std::uint32_t version() const;

  const IntrusivePtr<TensorImpl>& impl() const { return impl_; }

 private:
  void check_dtype(DType asked) const;
  IntrusivePtr<TensorImpl> impl_;
};

// --- making tensors ---
Tensor empty(const Dims& sizes, const TensorOptions& options = {});  ///< numbers are undefined
Tensor zeros(const Dims& sizes, const TensorOptions& options = {});
Tensor ones(const Dims& sizes, const TensorOptions& options = {});
Tensor full(const Dims& sizes, double value, const TensorOptions& options = {});
/// 0, 1, ..., n-1.
Tensor arange(std::int64_t n, const TensorOptions& options = {.dtype = DType::int64});
/// A tensor with a copy of the values, row-major. Blocks the host when `device` is a GPU.
template <class T>
Tensor tensor(std::span<const T> values, const Dims& sizes, Device device = Device::cpu());
template <class T>
Tensor tensor(const std::vector<T>& values, const Dims& sizes, Device device = Device::cpu()) {
  return tensor(std::span<const T>(values), sizes, device);
}
template <class T>
Tensor tensor(std::initializer_list<T> values, Device device = Device::cpu()) {
  return tensor(std::span<const T>(values.begin(), values.size()), {static_cast<std::int64_t>(values.size())}, device);
}
/// A tensor over memory that somebody else owns. `strides` in elements, empty for row-major. `release` is
/// called once when the last tensor over it is gone, by the thread that drops it: any thread, also one of autograd or
/// of a group, and perhaps with locks of the library held. So it should be short, wait for no other rank and call
/// nothing of libddp that does; what it throws is lost. By then the host has waited for what other streams do with the
/// memory, but not for the stream that was current here: whoever frees or overwrites device memory does so in order
/// with that stream. For device memory, `stream` is where its present contents are being written: the current stream is
/// made to wait for it. Throws InvalidArgument for memory that is not where `options` say: a GPU's given as the CPU's
/// or another GPU's, the host's as a GPU's, pageable as pinned.
Tensor from_blob(void* data, const Dims& sizes, const TensorOptions& options, const Dims& strides = {},
                 std::function<void()> release = {});
Tensor from_blob(void* data, const Dims& sizes, const TensorOptions& options, StreamView stream,
                 const Dims& strides = {}, std::function<void()> release = {});

/// True when sizes and dtype are equal and all elements compare equal (NaN differs from all). Blocks the
/// host on CUDA.
bool equal(const Tensor& a, const Tensor& b, std::source_location where = std::source_location::current());

}  // namespace ddp
