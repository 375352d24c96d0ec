#include "tensor/tensor_impl.h"

#include <utility>
#include <vector>

#include "core/allocator.h"
#include "tensor/sizes.h"

namespace ddp {

template <>
void IntrusivePtr<TensorImpl>::retain() const noexcept {
  if (object_ != nullptr) object_->add_reference();
}

template <>
void IntrusivePtr<TensorImpl>::drop() noexcept {
  if (object_ != nullptr && object_->drop_reference()) delete object_;
}

struct Storage::User : core::Pooled {
  explicit User(StreamView on) : stream(on) {}
  StreamView stream;
  User* next = nullptr;
};

Storage::Storage(std::size_t bytes, Device device, bool pinned)
    : bytes_(bytes), stream_(current_stream(device)), pinned_(pinned && device.is_cpu() && core::can_pin()) {
  data_ = pinned_ ? core::allocate_pinned(bytes) : core::allocate(bytes, stream_);
}

Storage::Storage(void* foreign, std::size_t bytes, Device device, std::function<void()> release, bool pinned)
    : data_(foreign),
      bytes_(bytes),
      stream_(current_stream(device)),
      foreign_(true),
      pinned_(pinned && core::can_pin()),
      release_(std::move(release)) {}

Storage::~Storage() {
  if (users_.load(std::memory_order_acquire) != nullptr) [[unlikely]] {
    end_after_users();
  } else if (foreign_) {
    release_foreign();
  } else if (pinned_) {
    core::deallocate_pinned(data_, bytes_, {});
  } else {
    core::deallocate(data_, bytes_, stream_);
  }
}

void Storage::used_on(StreamView stream) {
  if (stream == stream_ || stream.device().is_cpu()) return;
  for (const User* user = users_.load(std::memory_order_acquire); user != nullptr; user = user->next) {
    if (user->stream == stream) return;
  }
  auto* user = new User(stream);
  user->next = users_.load(std::memory_order_relaxed);
  while (!users_.compare_exchange_weak(user->next, user, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

void Storage::end_after_users() noexcept {
  User* first = users_.load(std::memory_order_acquire);
  std::vector<StreamView> streams;
  try {
    for (const User* user = first; user != nullptr; user = user->next) streams.push_back(user->stream);
    if (foreign_ && release_) {  // its owner knows nothing of our streams
      for (const StreamView stream : streams) {
        Event end(stream.device());
        end.record(stream);
        if (!end.is_complete()) end.synchronize();
      }
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): a device in trouble runs nothing any more
  }
  while (first != nullptr) delete std::exchange(first, first->next);
  if (foreign_) {
    release_foreign();
  } else if (pinned_) {
    core::deallocate_pinned(data_, bytes_, streams);
  } else {
    core::deallocate(data_, bytes_, stream_, streams);
  }
}

void Storage::release_foreign() noexcept {
  if (!release_) return;
  try {
    release_();
  } catch (
      ...) {  // NOLINT(bugprone-empty-catch): a destructor must not throw, and the owner's function failed, not ours
  }
}

namespace {

bool is_row_major(const Dims& sizes, const Dims& strides) {
  std::int64_t expected = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 0) return true;
    if (sizes[i] != 1 && strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

}  // namespace

TensorImpl::TensorImpl(IntrusivePtr<Storage> storage, const Dims& sizes, const Dims& strides, std::int64_t offset,
                       DType dtype)
    : storage_(std::move(storage)),
      sizes_(sizes),
      strides_(strides),
      offset_(offset),
      numel_(raw::checked_numel(sizes)),
      dtype_(dtype),
      contiguous_(numel_ == 0 || is_row_major(sizes, strides)) {}

TensorImpl::TensorImpl(IntrusivePtr<Storage> storage, const Dims& sizes, std::int64_t numel, DType dtype)
    : storage_(std::move(storage)), sizes_(sizes), strides_(contiguous_strides(sizes)), numel_(numel), dtype_(dtype) {}

TensorImpl::TensorImpl(const TensorImpl& other, Alias)
    : storage_(other.storage_),
      sizes_(other.sizes_),
      strides_(other.strides_),
      offset_(other.offset_),
      numel_(other.numel_),
      dtype_(other.dtype_),
      contiguous_(other.contiguous_) {}

void* TensorImpl::data() const {
  auto* bytes = static_cast<std::byte*>(storage_->data());
  return bytes == nullptr ? nullptr : bytes + offset_ * static_cast<std::int64_t>(size_of(dtype_));
}

void TensorImpl::replace(const TensorImpl& other) {
  storage_ = other.storage_;
  sizes_ = other.sizes_;
  strides_ = other.strides_;
  offset_ = other.offset_;
  numel_ = other.numel_;
  dtype_ = other.dtype_;
  contiguous_ = other.contiguous_;
}

Tensor make_alias(const Tensor& base) { return Tensor(make_intrusive<TensorImpl>(*base.impl(), TensorImpl::Alias{})); }

Tensor make_view(const Tensor& base, const Dims& sizes, const Dims& strides, std::int64_t offset) {
  return Tensor(make_intrusive<TensorImpl>(base.impl()->storage(), sizes, strides, offset, base.dtype()));
}

}  // namespace ddp
