#pragma once

#include <atomic>
#include <functional>

#include "core/object_pool.h"
#include "ddp/tensor/tensor.h"

namespace ddp {

/// Bytes on a device, shared by all views of them. Owns its block of the caching allocator, or looks at
/// foreign memory and calls `release` at the end.
class Storage : public RefCounted, public core::Pooled {
 public:
  /// `pinned`: page-locked, for CPU devices, where there is such memory.
  Storage(std::size_t bytes, Device device, bool pinned = false);
  Storage(void* foreign, std::size_t bytes, Device device, std::function<void()> release, bool pinned = false);
  ~Storage() override;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return stream_.device(); }
  bool is_foreign() const { return foreign_; }
  bool is_pinned() const { return pinned_; }
  /// Work queued on that stream uses the memory: who gets it after this storage waits for what the stream has when the
  /// storage goes. Nothing needs to be said of the stream that the memory was taken for. Any thread.
  void used_on(StreamView stream);

  std::uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

  /// A 32-bit word in memory of the same device, or null. While it is not 0 the contents must not be used: the
  /// reduction that should have made them failed. Optimisers read it on the device, in stream order, so that the
  /// host need not wait for it.
  const std::uint32_t* refusal() const {
    return refusal_ ? static_cast<const std::uint32_t*>(refusal_->data()) : nullptr;
  }
  /// The word's memory. Who takes a word back to 0 raises the version of that memory (optimisers look into their count
  /// of refused updates then); nobody else does in each pass.
  const IntrusivePtr<Storage>& refusal_word() const { return refusal_; }
  /// `word` (at least four bytes, kept alive) holds for all views of this storage from now on. Null takes it away.
  void set_refusal(IntrusivePtr<Storage> word) { refusal_ = std::move(word); }

 private:
  struct User;
  void end_after_users() noexcept;
  void release_foreign() noexcept;

  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  StreamView stream_;  // the stream the block was taken for
  bool foreign_ = false;
  bool pinned_ = false;
  std::atomic<User*> users_{nullptr};
  std::function<void()> release_;
  std::atomic<std::uint32_t> version_{0};
  IntrusivePtr<Storage> refusal_;
};

/// The slot that the autograd room fills: what made a tensor, or where its gradient goes. Opaque here.
class AutogradMetaBase : public RefCounted, public core::Pooled {};

/// What a Tensor points to.
class TensorImpl : public RefCounted, public core::Pooled {
 public:
  struct Alias {};
  TensorImpl(IntrusivePtr<Storage> storage, const Dims& sizes, const Dims& strides, std::int64_t offset, DType dtype);
  /// Row-major, without an offset; `numel` is the product of the sizes.
  TensorImpl(IntrusivePtr<Storage> storage, const Dims& sizes, std::int64_t numel, DType dtype);
  /// The same numbers outside the graph.
  TensorImpl(const TensorImpl& other, Alias);

  const IntrusivePtr<Storage>& storage() const { return storage_; }
  const Dims& sizes() const { return sizes_; }
  const Dims& strides() const { return strides_; }
  std::int64_t offset() const { return offset_; }
  std::int64_t numel() const { return numel_; }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_->device(); }
  bool is_contiguous() const { return contiguous_; }
  void* data() const;

  /// Gives this handle other memory and place: `Module::to`, and gradients that move at a re-plan.
  void replace(const TensorImpl& other);

  bool requires_grad = false;
  IntrusivePtr<AutogradMetaBase> autograd;  // null: a leaf that has no gradient memory yet

 private:
  IntrusivePtr<Storage> storage_;
  Dims sizes_;
  Dims strides_;
  std::int64_t offset_ = 0;
  std::int64_t numel_ = 0;
  DType dtype_ = DType::float32;
  bool contiguous_ = true;
};

/// The same tensor outside the graph, as a handle target of its own.
Tensor make_alias(const Tensor& base);
/// A tensor over part of `base`'s storage, outside the graph. No check of bounds.
Tensor make_view(const Tensor& base, const Dims& sizes, const Dims& strides, std::int64_t offset);

}  // namespace ddp
