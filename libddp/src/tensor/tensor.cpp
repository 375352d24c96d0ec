#include "ddp/tensor/tensor.h"

#include "core/device_runtime.h"
#include "core/thread_state.h"
#include "ddp/core/error.h"
#include "tensor/copy.h"
#include "tensor/elementwise.h"
#include "tensor/tensor_impl.h"

namespace ddp {
namespace {

const TensorImpl& require(const IntrusivePtr<TensorImpl>& impl) {
  DDP_CHECK(impl, InvalidArgument, "the tensor is undefined (it was default-constructed, or has no gradient yet)");
  return *impl;
}

/// In-place changes are not recorded, so on a tensor that is being recorded they would give wrong gradients.
void begin_in_place(const Tensor& tensor, const char* what) {
  const TensorImpl& impl = require(tensor.impl());
  DDP_CHECK(
      !(core::grad_mode() && impl.requires_grad), AutogradError, what, " changes a tensor of sizes ", impl.sizes(),
      " that requires grad, and in-place changes are not recorded; use the function without '_', or a NoGradGuard");
  impl.storage()->bump_version();
}

}  // namespace

const Dims& Tensor::sizes() const { return require(impl_).sizes(); }
const Dims& Tensor::strides() const { return require(impl_).strides(); }
std::int64_t Tensor::size(std::int64_t dim) const { return sizes()[wrap_dim(dim, sizes().size())]; }
std::int64_t Tensor::numel() const { return require(impl_).numel(); }
DType Tensor::dtype() const { return require(impl_).dtype(); }
Device Tensor::device() const { return require(impl_).device(); }
bool Tensor::is_contiguous() const { return require(impl_).is_contiguous(); }
std::int64_t Tensor::storage_offset() const { return require(impl_).offset(); }
void* Tensor::data() const { return require(impl_).data(); }
void Tensor::used_on(StreamView stream) const { require(impl_).storage()->used_on(stream); }
std::uint32_t Tensor::version() const { return require(impl_).storage()->version(); }

bool Tensor::is_pinned() const {
  const Storage& storage = *require(impl_).storage();
  if (storage.is_pinned()) return true;
  core::DeviceRuntime& cuda = core::cuda_runtime();
  return storage.is_foreign() && storage.device().is_cpu() && cuda.started() &&
         cuda.describe(storage.data()).kind == core::PointerKind::pinned;
}

bool Tensor::shares_storage_with(const Tensor& other) const {
  return require(impl_).storage() == require(other.impl_).storage();
}

void Tensor::check_dtype(DType asked) const {
  DDP_CHECK(dtype() == asked, InvalidArgument, "the tensor holds ", dtype(), ", asked for as ", asked);
}

Tensor& Tensor::fill_(double value) {
  begin_in_place(*this, "fill_");
  raw::fill_(*this, value);
  return *this;
}

Tensor& Tensor::zero_() {
  begin_in_place(*this, "zero_");
  raw::fill_(*this, 0);
  return *this;
}

Tensor& Tensor::copy_(const Tensor& source, std::source_location where) {
  begin_in_place(*this, "copy_");
  raw::copy_(*this, source, where);
  return *this;
}

Tensor& Tensor::add_(const Tensor& other, double alpha) {
  begin_in_place(*this, "add_");
  raw::axpy_(*this, other, alpha);
  return *this;
}

Tensor& Tensor::mul_(double factor) {
  begin_in_place(*this, "mul_");
  raw::scale_(*this, factor);
  return *this;
}

Tensor& Tensor::mul_(const Tensor& other) {
  begin_in_place(*this, "mul_");
  raw::mul_(*this, other);
  return *this;
}

Tensor Tensor::detach() const {
  require(impl_);
  return make_alias(*this);
}

}  // namespace ddp
