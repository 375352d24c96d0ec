#include <algorithm>
#include <string_view>
#include <utility>

#include "tensor/checks.h"
#include "tensor/copy.h"
#include "tensor/sizes.h"
#include "tensor/tensor_impl.h"

/// The part of copy.h that moves no data.
namespace ddp::raw {

namespace {

// `sizes` with a -1 replaced by what the number of elements leaves for it.
Dims resolve_sizes(std::string_view operation, const Tensor& x, const Dims& sizes) {
  Dims resolved = sizes;
  std::size_t open = sizes.size();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    DDP_CHECK(sizes[i] >= -1, InvalidArgument, operation, ": sizes ", sizes, "; allowed: 0 or more, and one -1");
    if (sizes[i] == -1) {
      DDP_CHECK(open == sizes.size(), InvalidArgument, operation, ": sizes ", sizes, " have more than one -1");
      open = i;
      resolved[i] = 1;
    }
  }
  if (open != sizes.size()) {
    const std::int64_t known = checked_numel(resolved);
    DDP_CHECK(known != 0 && x.numel() % known == 0, InvalidArgument, operation, ": ", x.numel(), " elements (sizes ",
              x.sizes(), ") do not fit sizes ", sizes);
    resolved[open] = x.numel() / known;
  }
  DDP_CHECK(checked_numel(resolved) == x.numel(), InvalidArgument, operation, ": ", x.numel(), " elements (sizes ",
            x.sizes(), ") do not fit sizes ", sizes);
  return resolved;
}

// Strides under which the same memory has the new sizes; false when there are none. Both shapes are walked
// from the back: a group of old dimensions that lie behind each other in memory takes new dimensions until
// the counts agree.
bool view_strides(const Tensor& x, const Dims& sizes, Dims& strides) {
  if (x.numel() == 0 || x.is_contiguous()) {
    strides = contiguous_strides(sizes);
    return true;
  }
  Dims old_sizes;  // without dimensions of one element, which have no say
  Dims old_strides;
  for (std::size_t i = 0; i < x.sizes().size(); ++i) {
    if (x.sizes()[i] == 1) continue;
    old_sizes.push_back(x.sizes()[i]);
    old_strides.push_back(x.strides()[i]);
  }
  strides = Dims::filled(sizes.size(), 1);
  std::size_t next = sizes.size();
  std::size_t d = old_sizes.size();
  while (d > 0) {
    --d;
    const std::int64_t stride = old_strides[d];
    std::int64_t count = old_sizes[d];
    while (d > 0 && old_strides[d - 1] == old_strides[d] * old_sizes[d]) count *= old_sizes[--d];
    std::int64_t filled = 1;
    while (next > 0 && (filled < count || sizes[next - 1] == 1)) {
      --next;
      strides[next] = stride * filled;
      filled *= sizes[next];
    }
    if (filled != count) return false;
  }
  return true;
}

}  // namespace

Tensor view(const Tensor& x, const Dims& sizes) {
  check_defined("view", "tensor", x);
  const Dims resolved = resolve_sizes("view", x, sizes);
  Dims strides;
  DDP_CHECK(view_strides(x, resolved, strides), InvalidArgument, "view: sizes ", x.sizes(), " with strides ",
            x.strides(), " cannot be seen as ", resolved, " without a copy; use reshape");
  return make_view(x, resolved, strides, x.storage_offset());
}

Tensor reshape(const Tensor& x, const Dims& sizes) {
  check_defined("reshape", "tensor", x);
  const Dims resolved = resolve_sizes("reshape", x, sizes);
  Dims strides;
  if (view_strides(x, resolved, strides)) return make_view(x, resolved, strides, x.storage_offset());
  const Tensor copy = clone(x);
  return make_view(copy, resolved, contiguous_strides(resolved), 0);
}

Tensor transpose(const Tensor& x, std::int64_t a, std::int64_t b) {
  check_defined("transpose", "tensor", x);
  Dims sizes = x.sizes();
  Dims strides = x.strides();
  const std::size_t first = wrap_dim(a, sizes.size());
  const std::size_t second = wrap_dim(b, sizes.size());
  std::swap(sizes[first], sizes[second]);
  std::swap(strides[first], strides[second]);
  return make_view(x, sizes, strides, x.storage_offset());
}

Tensor permute(const Tensor& x, const Dims& order) {
  check_defined("permute", "tensor", x);
  DDP_CHECK(order.size() == x.sizes().size(), InvalidArgument, "permute: order ", order, " for sizes ", x.sizes(),
            "; allowed: each dimension once");
  Dims sizes = x.sizes();
  Dims strides = x.strides();
  Dims seen = Dims::filled(order.size(), 0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t from = wrap_dim(order[i], order.size());
    DDP_CHECK(seen[from] == 0, InvalidArgument, "permute: order ", order, " names dimension ", from,
              " twice; allowed: each dimension once");
    seen[from] = 1;
    sizes[i] = x.sizes()[from];
    strides[i] = x.strides()[from];
  }
  return make_view(x, sizes, strides, x.storage_offset());
}

Tensor expand(const Tensor& x, const Dims& sizes) {
  check_defined("expand", "tensor", x);
  Dims resolved = sizes;  // -1 keeps the size there
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::size_t behind = sizes.size() - i;
    if (sizes[i] == -1 && behind <= x.sizes().size()) resolved[i] = x.sizes()[x.sizes().size() - behind];
    DDP_CHECK(resolved[i] >= 0, InvalidArgument, "expand: sizes ", sizes, " for a tensor of sizes ", x.sizes());
  }
  const Tensor wide = broadcast_to("expand", x, resolved);
  return wide.is_same(x) ? make_view(x, x.sizes(), x.strides(), x.storage_offset()) : wide;
}

Tensor slice(const Tensor& x, std::int64_t dim, std::int64_t begin, std::int64_t end, std::int64_t step) {
  check_defined("slice", "tensor", x);
  const std::size_t at = wrap_dim(dim, x.sizes().size());
  const std::int64_t size = x.sizes()[at];
  DDP_CHECK(step >= 1, InvalidArgument, "slice: step ", step, "; allowed: 1 or more");
  // Python's rule: negative positions count from the back, and positions outside are moved to the border.
  const auto position = [size](std::int64_t value) {
    return std::clamp<std::int64_t>(value < 0 ? value + size : value, 0, size);
  };
  const std::int64_t first = position(begin);
  const std::int64_t last = std::max(first, position(end));
  Dims sizes = x.sizes();
  Dims strides = x.strides();
  sizes[at] = (last - first) / step + ((last - first) % step != 0 ? 1 : 0);
  const std::int64_t offset = x.storage_offset() + first * strides[at];
  // A step past the end must not overflow; with at most one element the stride is never used.
  if (sizes[at] > 1) strides[at] *= step;
  return make_view(x, sizes, strides, offset);
}

}  // namespace ddp::raw
