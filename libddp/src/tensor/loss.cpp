#include "tensor/loss.h"

#include <string_view>

#include "tensor/backend/loss_backend.h"
#include "tensor/checks.h"
#include "tensor/copy.h"

namespace ddp::raw {
namespace {

void check_classes(std::string_view operation, const Tensor& logits, const Tensor& target) {
  check_same_device(operation, logits, target);
  check_floating(operation, logits);
  DDP_CHECK(logits.dim() == 2 && target.dim() == 1 && target.size(0) == logits.size(0), InvalidArgument, operation,
            ": logits ", logits.sizes(), " and target ", target.sizes(), "; expected [N, C] and [N]");
  DDP_CHECK(target.dtype() == DType::int64, InvalidArgument, operation, ": target has dtype ", target.dtype(),
            "; expected int64");
}

void check_smoothing(std::string_view operation, double smoothing) {
  DDP_CHECK(smoothing >= 0 && smoothing <= 1, InvalidArgument, operation, ": label_smoothing ", smoothing,
            "; allowed: 0 to 1");
}

void check_loss_grad(std::string_view operation, const Tensor& grad, const Tensor& x) {
  check_same_kind(operation, grad, x);
  DDP_CHECK(grad.numel() == 1, InvalidArgument, operation, ": the loss's gradient has sizes ", grad.sizes(),
            "; expected one element");
}

void check_pair(std::string_view operation, const Tensor& x, const Tensor& target) {
  check_same_kind(operation, x, target);
  check_floating(operation, x);
  check_sizes(operation, "target", target, x.sizes());
}

}  // namespace

CrossEntropyResult cross_entropy(const Tensor& logits, const Tensor& target, Reduction reduction,
                                 double label_smoothing) {
  check_classes("cross_entropy", logits, target);
  check_smoothing("cross_entropy", label_smoothing);
  CrossEntropyResult result{empty({}, logits.options()), empty(logits.sizes(), logits.options())};
  loss_backend(logits.device())
      .cross_entropy(contiguous(logits), contiguous(target), reduction, label_smoothing, result.log_probs, result.loss);
  return result;
}

Tensor cross_entropy_grad(const Tensor& grad, const Tensor& log_probs, const Tensor& target, Reduction reduction,
                          double label_smoothing) {
  check_classes("cross_entropy_grad", log_probs, target);
  check_smoothing("cross_entropy_grad", label_smoothing);
  check_loss_grad("cross_entropy_grad", grad, log_probs);
  const Tensor out = empty(log_probs.sizes(), log_probs.options());
  if (out.numel() != 0) {
    loss_backend(grad.device())
        .cross_entropy_grad(contiguous(grad), contiguous(log_probs), contiguous(target), reduction, label_smoothing,
                            out);
  }
  return out;
}

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  check_pair("mse_loss", x, target);
  const Tensor loss = empty({}, x.options());
  loss_backend(x.device()).mse_loss(contiguous(x), contiguous(target), reduction, loss);
  return loss;
}

Tensor mse_loss_grad(const Tensor& grad, const Tensor& x, const Tensor& target, Reduction reduction) {
  check_pair("mse_loss_grad", x, target);
  check_loss_grad("mse_loss_grad", grad, x);
  const Tensor out = empty(x.sizes(), x.options());
  if (out.numel() != 0) {
    loss_backend(x.device()).mse_loss_grad(contiguous(grad), contiguous(x), contiguous(target), reduction, out);
  }
  return out;
}

Tensor count_correct(const Tensor& logits, const Tensor& target) {
  check_classes("count_correct", logits, target);
  const Tensor out = empty({}, {DType::int64, logits.device()});
  loss_backend(logits.device()).count_correct(contiguous(logits), contiguous(target), out);
  return out;
}

}  // namespace ddp::raw
