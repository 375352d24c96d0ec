#include "tensor/checks.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "tensor/tensor_impl.h"

namespace ddp::raw {

void check_defined(std::string_view operation, std::string_view what, const Tensor& tensor) {
  DDP_CHECK(tensor.defined(), InvalidArgument, operation, ": ", what, " is an undefined tensor");
}

void check_same_device(std::string_view operation, const Tensor& a, const Tensor& b) {
  check_defined(operation, "first argument", a);
  check_defined(operation, "second argument", b);
  DDP_CHECK(a.device() == b.device(), InvalidArgument, operation, ": tensors are on ", a.device(), " and ", b.device(),
            "; they must be on one device");
}

void check_same_kind(std::string_view operation, const Tensor& a, const Tensor& b) {
  check_same_device(operation, a, b);
  DDP_CHECK(a.dtype() == b.dtype(), InvalidArgument, operation, ": dtypes ", a.dtype(), " and ", b.dtype(),
            " differ; convert one of them");
}

void check_sizes(std::string_view operation, std::string_view what, const Tensor& tensor, const Dims& sizes) {
  check_defined(operation, what, tensor);
  DDP_CHECK(tensor.sizes() == sizes, InvalidArgument, operation, ": ", what, " has sizes ", tensor.sizes(),
            ", expected ", sizes);
}

void check_floating(std::string_view operation, const Tensor& tensor) {
  check_defined(operation, "input", tensor);
  DDP_CHECK(is_floating_point(tensor.dtype()), InvalidArgument, operation, ": dtype ", tensor.dtype(),
            "; allowed: float32, float64, float16, bfloat16");
}

void check_writable(std::string_view operation, const Tensor& tensor) {
  if (tensor.is_contiguous()) return;
  std::array<std::pair<std::int64_t, std::int64_t>, Dims::kMaxRank> dims;  // stride, size; by stride
  std::size_t rank = 0;
  for (std::size_t i = 0; i < tensor.sizes().size(); ++i) {
    if (tensor.sizes()[i] == 0) return;
    if (tensor.sizes()[i] == 1) continue;
    const std::pair dim{tensor.strides()[i], tensor.sizes()[i]};
    std::size_t at = rank++;
    for (; at > 0 && dims[at - 1] > dim; --at) dims[at] = dims[at - 1];
    dims[at] = dim;
  }
  std::int64_t extent = 1;
  for (std::size_t i = 0; i < rank; ++i) {
    DDP_CHECK(dims[i].first >= extent, InvalidArgument, operation,
              ": cannot write to a tensor whose elements share memory (sizes ", tensor.sizes(), ", strides ",
              tensor.strides(), "); clone it first");
    extent = dims[i].first * (dims[i].second - 1) + extent;
  }
}

Tensor result(std::string_view operation, const Tensor& out, const Dims& sizes, const TensorOptions& options) {
  if (!out.defined()) return empty(sizes, options);
  check_sizes(operation, "out", out, sizes);
  DDP_CHECK(out.dtype() == options.dtype, InvalidArgument, operation, ": out has dtype ", out.dtype(), ", expected ",
            options.dtype);
  DDP_CHECK(out.device() == options.device, InvalidArgument, operation, ": out is on ", out.device(), ", expected ",
            options.device);
  check_writable(operation, out);
  return out;
}

namespace {

// First address and one past the last, of a tensor with at least one element.
std::pair<std::uintptr_t, std::uintptr_t> address_range(const Tensor& x) {
  std::int64_t low = 0;
  std::int64_t high = 0;
  for (std::size_t i = 0; i < x.sizes().size(); ++i) {
    const std::int64_t reach = (x.sizes()[i] - 1) * x.strides()[i];
    (reach < 0 ? low : high) += reach;
  }
  const auto base = reinterpret_cast<std::uintptr_t>(x.data());
  const auto bytes = static_cast<std::int64_t>(size_of(x.dtype()));
  return {base + static_cast<std::uintptr_t>(low * bytes), base + static_cast<std::uintptr_t>((high + 1) * bytes)};
}

}  // namespace

Overlap overlap(const Tensor& a, const Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0) return Overlap::none;
  const auto [a_low, a_high] = address_range(a);
  const auto [b_low, b_high] = address_range(b);
  if (a_high <= b_low || b_high <= a_low) return Overlap::none;
  if (a.data() != b.data() || a.dtype() != b.dtype() || !(a.sizes() == b.sizes())) return Overlap::maybe;
  for (std::size_t i = 0; i < a.sizes().size(); ++i) {
    if (a.sizes()[i] > 1 && a.strides()[i] != b.strides()[i]) return Overlap::maybe;
  }
  return Overlap::same;
}

Tensor broadcast_to(std::string_view operation, const Tensor& x, const Dims& sizes) {
  if (x.sizes() == sizes) return x;
  const std::size_t extra = sizes.size() - std::min(sizes.size(), x.sizes().size());
  bool allowed = x.sizes().size() <= sizes.size();
  Dims strides = Dims::filled(sizes.size(), 0);
  for (std::size_t i = 0; allowed && i < x.sizes().size(); ++i) {
    if (x.sizes()[i] == sizes[extra + i]) {
      strides[extra + i] = x.strides()[i];
    } else {
      allowed = x.sizes()[i] == 1;
    }
  }
  DDP_CHECK(allowed, InvalidArgument, operation, ": sizes ", x.sizes(), " cannot be broadcast to ", sizes);
  return make_view(x, sizes, strides, x.storage_offset());
}

}  // namespace ddp::raw
