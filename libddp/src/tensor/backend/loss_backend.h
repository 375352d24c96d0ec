#pragma once

#include "tensor/backend/backend.h"
#include "tensor/loss.h"

namespace ddp::raw {

/// All tensors of a call are row-major and on one device; sizes fit. Zero elements are possible: the mean over
/// nothing is NaN, the sum 0. Labels are checked where that needs no wait (CPU); a backend that cannot ask makes
/// the loss NaN, and the gradient of the label's row, and touches no memory for it.
class LossBackend {
 public:
  virtual ~LossBackend() = default;
  /// From logits [n, c] to log-probabilities [n, c], saved for the gradient, and from them the one-element loss:
  /// one call, so that a backend can make it one launch.
  virtual void cross_entropy(const Tensor& /*logits*/, const Tensor& /*target*/, Reduction /*reduction*/,
                             double /*label_smoothing*/, const Tensor& /*log_probs*/, const Tensor& loss) {
    missing("cross_entropy", loss);
  }
  virtual void cross_entropy_grad(const Tensor& /*grad*/, const Tensor& /*log_probs*/, const Tensor& /*target*/,
                                  Reduction /*reduction*/, double /*label_smoothing*/, const Tensor& out) {
    missing("cross_entropy_grad", out);
  }
  virtual void mse_loss(const Tensor& /*x*/, const Tensor& /*target*/, Reduction /*reduction*/, const Tensor& loss) {
    missing("mse_loss", loss);
  }
  virtual void mse_loss_grad(const Tensor& /*grad*/, const Tensor& /*x*/, const Tensor& /*target*/,
                             Reduction /*reduction*/, const Tensor& out) {
    missing("mse_loss_grad", out);
  }
  virtual void count_correct(const Tensor& /*logits*/, const Tensor& /*target*/, const Tensor& out) {
    missing("count_correct", out);
  }

 private:
  [[noreturn]] static void missing(std::string_view operation, const Tensor& where) {
    not_available("loss", operation, where.device());
  }
};

LossBackend& cpu_loss();
LossBackend& cuda_loss();
inline LossBackend& loss_backend(Device device) { return device.is_cuda() ? cuda_loss() : cpu_loss(); }

}  // namespace ddp::raw
