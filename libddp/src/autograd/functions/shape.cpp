#include <algorithm>

#include "autograd/functions/common.h"
#include "tensor/copy.h"
#include "tensor/elementwise.h"
#include "tensor/tensor_impl.h"

namespace ddp {

namespace autograd {
namespace {

/// A handle of its own for a result that may be the input itself.
Tensor own(const Tensor& result, const Tensor& input) { return result.is_same(input) ? alias(input) : result; }

/// Part of a tensor. The gradient is zero elsewhere.
class SliceNode final : public Node {
 public:
  SliceNode(std::string_view name, const Tensor& x, std::int64_t dim, std::int64_t begin, std::int64_t end,
            std::int64_t step, bool selected)
      : Node(x.device()),
        name_(name),
        sizes_(x.sizes()),
        options_(x.options()),
        dim_(dim),
        begin_(begin),
        end_(end),
        step_(step),
        selected_(selected) {
    add_edge(x);
  }
  std::string_view name() const override { return name_; }
  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) override {
    Tensor grad = std::move(grads[0]);
    if (selected_) {
      Dims sizes = grad.sizes();
      Dims strides = grad.strides();
      sizes.insert(static_cast<std::size_t>(dim_), 1);
      strides.insert(static_cast<std::size_t>(dim_), 0);
      grad = make_view(grad, sizes, strides, grad.storage_offset());
    }
    Destination into = destination(0);
    if (!into.tensor.defined()) into.tensor = empty(sizes_, options_);
    if (!into.accumulate) raw::fill_(into.tensor, 0.0);
    const Tensor part = raw::slice(into.tensor, dim_, begin_, end_, step_);
    if (into.accumulate) {
      raw::axpy_(part, grad, 1.0);
    } else {
      raw::copy_(part, grad);
    }
    inputs[0] = std::move(into.tensor);
  }

 private:
  std::string_view name_;
  Dims sizes_;
  TensorOptions options_;
  std::int64_t dim_;
  std::int64_t begin_;
  std::int64_t end_;
  std::int64_t step_;
  bool selected_;
};

class CatNode final : public Node {
 public:
  CatNode(const std::vector<Tensor>& parts, std::size_t dim) : Node(parts[0].device()), dim_(dim) {
    for (const Tensor& part : parts) {
      add_edge(part);
      lengths_.push_back(part.sizes()[dim]);
    }
  }
  std::string_view name() const override { return "cat"; }
  void apply(std::vector<Tensor>& grads, std::vector<Tensor>& inputs) override {
    std::int64_t at = 0;
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      const std::int64_t end = at + lengths_[i];
      if (needs_input_grad(i)) inputs[i] = raw::slice(grads[0], static_cast<std::int64_t>(dim_), at, end, 1);
      at = end;
    }
  }

 private:
  std::size_t dim_;
  std::vector<std::int64_t> lengths_;
};

Tensor viewed(const Tensor& result, const Tensor& x, std::string_view name) {
  return record(own(result, x), x, name, [sizes = x.sizes()](const Tensor& grad) { return raw::reshape(grad, sizes); });
}

Tensor same(Tensor grad) { return grad; }

}  // namespace
}  // namespace autograd

using autograd::own;
using autograd::record;

Tensor reshape(const Tensor& x, const Dims& sizes) { return autograd::viewed(raw::reshape(x, sizes), x, "reshape"); }

Tensor flatten(const Tensor& x, std::int64_t start_dim, std::int64_t end_dim) {
  if (x.dim() == 0) return reshape(x, {1});
  const std::size_t first = wrap_dim(start_dim, x.sizes().size());
  const std::size_t last = wrap_dim(end_dim, x.sizes().size());
  DDP_CHECK(first <= last, InvalidArgument, "flatten from dimension ", start_dim, " to ", end_dim,
            ", which is before it, of a tensor of sizes ", x.sizes());
  Dims sizes;
  std::int64_t product = 1;
  for (std::size_t i = 0; i < x.sizes().size(); ++i) {
    if (i < first || i > last) {
      sizes.push_back(x.sizes()[i]);
    } else {
      product *= x.sizes()[i];
      if (i == last) sizes.push_back(product);
    }
  }
  return autograd::viewed(raw::reshape(x, sizes), x, "flatten");
}

Tensor transpose(const Tensor& x, std::int64_t a, std::int64_t b) {
  return record(own(raw::transpose(x, a, b), x), x, "transpose",
                [a, b](const Tensor& grad) { return raw::transpose(grad, a, b); });
}

Tensor permute(const Tensor& x, const Dims& order) {
  Tensor y = own(raw::permute(x, order), x);
  Dims inverse = Dims::filled(order.size(), 0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    inverse[wrap_dim(order[i], order.size())] = static_cast<std::int64_t>(i);
  }
  return record(std::move(y), x, "permute", [inverse](const Tensor& grad) { return raw::permute(grad, inverse); });
}

Tensor expand(const Tensor& x, const Dims& sizes) {
  return record(own(raw::expand(x, sizes), x), x, "expand",
                [from = x.sizes()](Tensor grad) { return autograd::unbroadcast(std::move(grad), from); });
}

Tensor slice(const Tensor& x, std::int64_t dim, std::int64_t begin, std::int64_t end, std::int64_t step) {
  Tensor y = own(raw::slice(x, dim, begin, end, step), x);
  if (autograd::needs_graph({&x})) {
    const auto axis = static_cast<std::int64_t>(wrap_dim(dim, x.sizes().size()));
    autograd::set_history(y, make_intrusive<autograd::SliceNode>("slice", x, axis, begin, end, step, false));
  }
  return y;
}

Tensor select(const Tensor& x, std::int64_t dim, std::int64_t index) {
  const std::size_t axis = wrap_dim(dim, x.sizes().size());
  const std::int64_t length = x.sizes()[axis];
  DDP_CHECK(index >= -length && index < length, InvalidArgument, "select of index ", index, " along dimension ", dim,
            " of a tensor of sizes ", x.sizes(), "; allowed is [", -length, ", ", length, ")");
  const std::int64_t at = index < 0 ? index + length : index;
  Dims sizes = x.sizes();
  Dims strides = x.strides();
  const std::int64_t offset = x.storage_offset() + at * strides[axis];
  sizes.erase(axis);
  strides.erase(axis);
  Tensor y = make_view(x, sizes, strides, offset);
  if (autograd::needs_graph({&x})) {
    autograd::set_history(
        y, make_intrusive<autograd::SliceNode>("select", x, static_cast<std::int64_t>(axis), at, at + 1, 1, true));
  }
  return y;
}

Tensor unsqueeze(const Tensor& x, std::int64_t dim) {
  const std::size_t axis = wrap_dim(dim, x.sizes().size() + 1);
  Dims sizes = x.sizes();
  Dims strides = x.strides();
  const std::int64_t stride = axis < sizes.size() ? sizes[axis] * strides[axis] : 1;
  sizes.insert(axis, 1);
  strides.insert(axis, stride);
  return autograd::viewed(make_view(x, sizes, strides, x.storage_offset()), x, "unsqueeze");
}

Tensor squeeze(const Tensor& x, std::int64_t dim) {
  const std::size_t axis = wrap_dim(dim, x.sizes().size());
  Dims sizes = x.sizes();
  Dims strides = x.strides();
  if (sizes[axis] == 1) {  // else nothing to do, as in PyTorch
    sizes.erase(axis);
    strides.erase(axis);
  }
  return autograd::viewed(make_view(x, sizes, strides, x.storage_offset()), x, "squeeze");
}

Tensor cat(const std::vector<Tensor>& parts, std::int64_t dim) {
  Tensor y = raw::cat(parts, dim);
  if (parts.size() == 1) y = own(y, parts[0]);
  if (autograd::needs_graph(parts)) {
    autograd::set_history(y, make_intrusive<autograd::CatNode>(parts, wrap_dim(dim, parts[0].sizes().size())));
  }
  return y;
}

Tensor contiguous(const Tensor& x) {
  Tensor y = raw::contiguous(x);
  return y.is_same(x) ? x : record(std::move(y), x, "contiguous", autograd::same);
}

Tensor clone(const Tensor& x) { return record(raw::clone(x), x, "clone", autograd::same); }

Tensor to(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor y = raw::to(x, dtype);
  if (!is_floating_point(dtype)) return y;
  return record(std::move(y), x, "to", [from = x.dtype()](const Tensor& grad) { return raw::to(grad, from); });
}

Tensor to(const Tensor& x, Device device, std::source_location where) {
  if (x.device() == device) return x;
  // The node runs where the gradient arrives; the copy back is handed to the other device's thread.
  return record(raw::to(x, device, where), x, "to",
                [from = x.device()](const Tensor& grad) { return raw::to(grad, from); });
}

}  // namespace ddp
