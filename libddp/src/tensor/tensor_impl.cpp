#include "tensor/tensor_impl.h"

#include <utility>

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

Storage::Storage(std::size_t bytes, Device device) : data_(nullptr), bytes_(bytes), stream_(current_stream(device)) {
  data_ = core::allocate(bytes, stream_);
}

Storage::Storage(void* foreign, std::size_t bytes, Device device, std::function<void()> release)
    : data_(foreign), bytes_(bytes), stream_(current_stream(device)), foreign_(true), release_(std::move(release)) {}

Storage::~Storage() {
  if (!foreign_) {
    core::deallocate(data_, bytes_, stream_);
    return;
  }
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
