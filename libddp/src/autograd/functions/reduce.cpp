#include "tensor/reduce.h"

#include "autograd/functions/common.h"
#include "tensor/copy.h"
#include "tensor/elementwise.h"
#include "tensor/tensor_impl.h"

namespace ddp {

namespace autograd {
namespace {

/// The dimensions that `dims` names, in rising order (all when empty).
Dims reduced_dims(const Dims& dims, std::size_t rank) {
  bool chosen[Dims::kMaxRank] = {};
  for (const std::int64_t dim : dims) {
    bool& entry = chosen[wrap_dim(dim, rank)];
    DDP_CHECK(!entry, InvalidArgument, "dimension ", dim, " appears twice in ", dims);
    entry = true;
  }
  Dims result;
  for (std::size_t i = 0; i < rank; ++i) {
    if (chosen[i] || dims.empty()) result.push_back(static_cast<std::int64_t>(i));
  }
  return result;
}

/// `grad` spread over `sizes` again: a view with stride 0 along the reduced dimensions.
Tensor spread(const Tensor& grad, const Dims& sizes, const Dims& reduced, bool kept) {
  Dims strides;
  std::size_t from = 0;
  std::size_t next = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (next < reduced.size() && reduced[next] == static_cast<std::int64_t>(i)) {
      ++next;
      strides.push_back(0);
      if (kept) ++from;
    } else {
      strides.push_back(grad.strides()[from++]);
    }
  }
  return make_view(grad, sizes, strides, grad.storage_offset());
}

std::int64_t count(const Tensor& x, const Dims& reduced) {
  std::int64_t n = 1;
  for (const std::int64_t dim : reduced) n *= x.sizes()[static_cast<std::size_t>(dim)];
  return n;
}

Tensor sum(const Tensor& x, const Dims& dims, bool keep_dim) {
  const Dims reduced = reduced_dims(dims, x.sizes().size());
  return record(raw::sum(x, dims, keep_dim), x, "sum", [sizes = x.sizes(), reduced, keep_dim](const Tensor& grad) {
    return spread(grad, sizes, reduced, keep_dim);
  });
}

Tensor mean(const Tensor& x, const Dims& dims, bool keep_dim) {
  DDP_CHECK(is_floating_point(x.dtype()), InvalidArgument, "mean needs a floating-point tensor, not ", x.dtype());
  const Dims reduced = reduced_dims(dims, x.sizes().size());
  const auto n = static_cast<double>(count(x, reduced));
  Tensor y;
  if (size_of(x.dtype()) < size_of(DType::float32)) {  // the sum may be beyond the range of the mean's dtype
    y = raw::to(raw::binary_scalar(raw::Binary::div, raw::sum(raw::to(x, DType::float32), dims, keep_dim), n),
                x.dtype());
  } else {
    y = raw::binary_scalar(raw::Binary::div, raw::sum(x, dims, keep_dim), n);
  }
  return record(std::move(y), x, "mean", [sizes = x.sizes(), reduced, keep_dim, n](const Tensor& grad) {
    return spread(raw::binary_scalar(raw::Binary::div, grad, n), sizes, reduced, keep_dim);
  });
}

class MaxNode final : public Node {
 public:
  MaxNode(const Tensor& x, const Tensor& indices, std::int64_t dim, bool kept)
      : Node(x.device()), sizes_(x.sizes()), indices_(indices), dim_(dim), kept_(kept) {
    add_edge(x);
  }
  std::string_view name() const override { return "max"; }
  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) override {
    inputs[0] = raw::scatter_by_index(grads[0], indices_.get(name()), sizes_, dim_, kept_);
  }
  void release_saved() override { indices_.release(); }

 private:
  Dims sizes_;
  SavedTensor indices_;
  std::int64_t dim_;
  bool kept_;
};

}  // namespace
}  // namespace autograd

Tensor sum(const Tensor& x) { return autograd::sum(x, {}, false); }
Tensor mean(const Tensor& x) { return autograd::mean(x, {}, false); }

Tensor sum(const Tensor& x, const Dims& dims, bool keep_dim) { return autograd::sum(x, dims, keep_dim); }
Tensor mean(const Tensor& x, const Dims& dims, bool keep_dim) { return autograd::mean(x, dims, keep_dim); }

MaxValues max(const Tensor& x, std::int64_t dim, bool keep_dim) {
  raw::MaxResult found = raw::max(x, dim, keep_dim);
  if (autograd::needs_graph({&x})) {
    autograd::set_history(found.values, make_intrusive<autograd::MaxNode>(x, found.indices, dim, keep_dim));
  }
  return {std::move(found.values), std::move(found.indices)};
}

Tensor max(const Tensor& x) { return max(reshape(x, {x.numel()}), 0).values; }

}  // namespace ddp
