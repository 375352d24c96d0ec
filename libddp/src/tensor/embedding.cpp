#include <string_view>

#include "tensor/backend/embedding_backend.h"
#include "tensor/checks.h"
#include "tensor/copy.h"
#include "tensor/loss.h"

namespace ddp::raw {
namespace {

Dims check_look_up(std::string_view operation, const Tensor& index, const Dims& weight_sizes) {
  DDP_CHECK(weight_sizes.size() == 2, InvalidArgument, operation, ": weight has sizes ", weight_sizes,
            "; expected [V, D]");
  DDP_CHECK(index.dtype() == DType::int64, InvalidArgument, operation, ": index has dtype ", index.dtype(),
            "; expected int64");
  Dims sizes = index.sizes();
  sizes.push_back(weight_sizes[1]);
  return sizes;
}

}  // namespace

Tensor embedding(const Tensor& weight, const Tensor& index) {
  check_same_device("embedding", weight, index);
  check_floating("embedding", weight);
  const Tensor out = empty(check_look_up("embedding", index, weight.sizes()), weight.options());
  if (index.numel() != 0) embedding_backend(weight.device()).embedding(weight, contiguous(index), out);
  return out;
}

Tensor embedding_grad(const Tensor& grad, const Tensor& index, const Dims& weight_sizes, const Tensor& out,
                      bool accumulate) {
  check_same_device("embedding_grad", grad, index);
  check_floating("embedding_grad", grad);
  DDP_CHECK(!accumulate || out.defined(), InvalidArgument, "embedding_grad: accumulate needs `out`");
  check_sizes("embedding_grad", "gradient", grad, check_look_up("embedding_grad", index, weight_sizes));
  const Tensor y = result("embedding_grad", out, weight_sizes, grad.options());
  const Tensor apart = overlap(y, grad) == Overlap::none ? contiguous(grad) : clone(grad);
  embedding_backend(grad.device()).embedding_grad(apart, contiguous(index), y, accumulate);
  return y;
}

}  // namespace ddp::raw
