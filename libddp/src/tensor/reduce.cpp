#include "tensor/reduce.h"

#include <array>

#include "tensor/backend/reduce_backend.h"
#include "tensor/checks.h"
#include "tensor/copy.h"
#include "tensor/tensor_impl.h"

namespace ddp::raw {

namespace {

// Sums of whole numbers and of bool are int64.
DType sum_dtype(DType dtype) { return is_floating_point(dtype) ? dtype : DType::int64; }

Dims without(const Dims& sizes, const std::array<bool, Dims::kMaxRank>& dropped) {
  Dims left;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (!dropped[i]) left.push_back(sizes[i]);
  }
  return left;
}

// `x` lacks the dropped dimensions; the view has them again, with size 1.
Tensor with_unit_dims(const Tensor& x, std::size_t rank, const std::array<bool, Dims::kMaxRank>& dropped) {
  Dims sizes;
  Dims strides;
  std::size_t next = 0;
  for (std::size_t i = 0; i < rank; ++i) {
    sizes.push_back(dropped[i] ? 1 : x.sizes()[next]);
    strides.push_back(dropped[i] ? 1 : x.strides()[next]);
    if (!dropped[i]) ++next;
  }
  return make_view(x, sizes, strides, x.storage_offset());
}

void run_sum(const Tensor& x, const Tensor& out, const Tensor& target, bool accumulate) {
  if (target.numel() == 0) return;
  const Tensor source = overlap(out, x) == Overlap::none ? x : clone(x);
  reduce_backend(x.device()).sum(source, target, accumulate);
}

void check_accumulate(std::string_view operation, const Tensor& out, bool accumulate) {
  DDP_CHECK(out.defined() || !accumulate, InvalidArgument, operation, ": accumulate needs an out tensor");
}

}  // namespace

Tensor sum(const Tensor& x, const Dims& dims, bool keep_dim, const Tensor& out, bool accumulate) {
  check_defined("sum", "input", x);
  check_accumulate("sum", out, accumulate);
  const std::size_t rank = x.sizes().size();
  std::array<bool, Dims::kMaxRank> dropped{};
  if (dims.empty()) dropped.fill(true);
  for (const std::int64_t dim : dims) {
    const std::size_t at = wrap_dim(dim, rank);
    DDP_CHECK(!dropped[at], InvalidArgument, "sum: dimensions ", dims, " name ", at, " twice");
    dropped[at] = true;
  }
  Dims kept = x.sizes();
  for (std::size_t i = 0; i < rank; ++i) {
    if (dropped[i]) kept[i] = 1;
  }
  Tensor target = result("sum", out, keep_dim ? kept : without(x.sizes(), dropped), {sum_dtype(x.dtype()), x.device()});
  run_sum(x, target, keep_dim ? target : with_unit_dims(target, rank, dropped), accumulate);
  return target;
}

Tensor sum_to(const Tensor& x, const Dims& sizes, const Tensor& out, bool accumulate) {
  check_defined("sum_to", "input", x);
  check_accumulate("sum_to", out, accumulate);
  if (x.sizes() == sizes && !out.defined()) return x;
  const std::size_t rank = x.sizes().size();
  bool allowed = sizes.size() <= rank;
  const std::size_t extra = allowed ? rank - sizes.size() : 0;
  for (std::size_t i = 0; allowed && i < sizes.size(); ++i) {
    allowed = sizes[i] == x.sizes()[extra + i] || sizes[i] == 1;
  }
  DDP_CHECK(allowed, InvalidArgument, "sum_to: sizes ", x.sizes(), " are no broadcast of ", sizes);
  Tensor target = result("sum_to", out, sizes, {sum_dtype(x.dtype()), x.device()});
  std::array<bool, Dims::kMaxRank> dropped{};
  for (std::size_t i = 0; i < extra; ++i) dropped[i] = true;
  run_sum(x, target, with_unit_dims(target, rank, dropped), accumulate);
  return target;
}

MaxResult max(const Tensor& x, std::int64_t dim, bool keep_dim) {
  check_defined("max", "input", x);
  const std::size_t at = wrap_dim(dim, x.sizes().size());
  DDP_CHECK(x.sizes()[at] > 0, InvalidArgument, "max: dimension ", at, " of sizes ", x.sizes(), " has no elements");
  Dims sizes = x.sizes();
  sizes[at] = 1;
  MaxResult found{empty(sizes, x.options()), empty(sizes, {DType::int64, x.device()})};
  if (found.values.numel() != 0) reduce_backend(x.device()).max(x, at, found.values, found.indices);
  if (!keep_dim) {
    sizes.erase(at);
    found = {view(found.values, sizes), view(found.indices, sizes)};
  }
  return found;
}

Tensor scatter_by_index(const Tensor& grad, const Tensor& indices, const Dims& sizes, std::int64_t dim, bool kept_dim) {
  check_same_device("scatter_by_index", grad, indices);
  DDP_CHECK(indices.dtype() == DType::int64, InvalidArgument, "scatter_by_index: indices have dtype ", indices.dtype(),
            "; allowed: int64");
  check_sizes("scatter_by_index", "indices", indices, grad.sizes());
  const std::size_t at = wrap_dim(dim, sizes.size());
  Dims expected = sizes;
  if (kept_dim) {
    expected[at] = 1;
  } else {
    expected.erase(at);
  }
  check_sizes("scatter_by_index", "gradient", grad, expected);
  Tensor out = zeros(sizes, grad.options());
  if (grad.numel() == 0) return out;
  std::array<bool, Dims::kMaxRank> dropped{};
  dropped[at] = true;
  const auto widen = [&](const Tensor& t) { return kept_dim ? t : with_unit_dims(t, sizes.size(), dropped); };
  reduce_backend(grad.device()).scatter_by_index(widen(grad), widen(indices), out, at);
  return out;
}

Tensor sum_of_squares(const Tensor& x) {
  check_floating("sum_of_squares", x);
  Tensor out = zeros({1}, {DType::float64, x.device()});
  if (x.numel() != 0) reduce_backend(x.device()).sum_of_squares(x, out);
  return out;
}

Tensor count_nonfinite(const Tensor& x) {
  check_floating("count_nonfinite", x);
  Tensor out = zeros({1}, {DType::int64, x.device()});
  if (x.numel() != 0) reduce_backend(x.device()).count_nonfinite(x, out);
  return out;
}

}  // namespace ddp::raw
