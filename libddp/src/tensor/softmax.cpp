#include <string_view>

#include "tensor/backend/softmax_backend.h"
#include "tensor/checks.h"
#include "tensor/copy.h"
#include "tensor/loss.h"

namespace ddp::raw {
namespace {

SoftmaxShape shape_of(const Dims& sizes, std::int64_t dim) {
  if (sizes.empty()) {  // a single number is a row of one
    wrap_dim(dim, 1);
    return {1, 1, 1};
  }
  const std::size_t axis = wrap_dim(dim, sizes.size());
  SoftmaxShape shape{1, sizes[axis], 1};
  for (std::size_t i = 0; i < axis; ++i) shape.outer *= sizes[i];
  for (std::size_t i = axis + 1; i < sizes.size(); ++i) shape.inner *= sizes[i];
  return shape;
}

Tensor forward(std::string_view operation, const Tensor& x, std::int64_t dim, bool logarithm) {
  check_floating(operation, x);
  const SoftmaxShape shape = shape_of(x.sizes(), dim);
  const Tensor y = empty(x.sizes(), x.options());
  if (y.numel() != 0) softmax_backend(x.device()).softmax(contiguous(x), shape, logarithm, y);
  return y;
}

Tensor backward(std::string_view operation, const Tensor& grad, const Tensor& y, std::int64_t dim, bool logarithm) {
  check_same_kind(operation, grad, y);
  check_floating(operation, grad);
  check_sizes(operation, "gradient", grad, y.sizes());
  const SoftmaxShape shape = shape_of(y.sizes(), dim);
  const Tensor x_grad = empty(y.sizes(), y.options());
  if (x_grad.numel() != 0) {
    softmax_backend(y.device()).softmax_grad(contiguous(grad), contiguous(y), shape, logarithm, x_grad);
  }
  return x_grad;
}

}  // namespace

Tensor softmax(const Tensor& x, std::int64_t dim) { return forward("softmax", x, dim, false); }
Tensor log_softmax(const Tensor& x, std::int64_t dim) { return forward("log_softmax", x, dim, true); }
Tensor softmax_grad(const Tensor& grad, const Tensor& y, std::int64_t dim) {
  return backward("softmax_grad", grad, y, dim, false);
}
Tensor log_softmax_grad(const Tensor& grad, const Tensor& y, std::int64_t dim) {
  return backward("log_softmax_grad", grad, y, dim, true);
}

}  // namespace ddp::raw
