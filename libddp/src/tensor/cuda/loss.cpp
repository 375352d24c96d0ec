#include "ddp_kernels/loss.h"

#include "tensor/backend/loss_backend.h"
#include "tensor/cuda/kernel_call.h"
#include "tensor/cuda/scratch.h"

namespace ddp::raw {
namespace {

kernels::CrossEntropy options_of(const Tensor& logits, Reduction reduction, double label_smoothing) {
  return {logits.sizes()[0], logits.sizes()[1], reduction == Reduction::mean, label_smoothing};
}

/// Runs `launch(partials, stream)`, and the sum of its partial sums where there is more than one.
template <class Launch>
void launch_sum(const char* what, const Tensor& out, unsigned blocks, double divisor, const Launch& launch) {
  const cuda::Scratch<double> partials(blocks > 1 ? blocks : 0, out.device());
  launch_kernel(what, out.device(), [&](cudaStream_t stream) { return launch(partials.data(), stream); });
  if (blocks == 1) return;
  launch_kernel("kernels::finish_sum", out.device(), [&](cudaStream_t stream) {
    return kernels::finish_sum(out.data(), kernel_type(out), partials.data(), blocks, divisor, stream);
  });
}

double divisor_of(std::int64_t count, Reduction reduction) {
  return reduction == Reduction::mean ? static_cast<double>(count) : 1.0;
}

class CudaLoss final : public LossBackend {
 public:
  void cross_entropy(const Tensor& logits, const Tensor& target, Reduction reduction, double label_smoothing,
                     const Tensor& log_probs, const Tensor& loss) override {
    const kernels::CrossEntropy options = options_of(logits, reduction, label_smoothing);
    launch_sum("kernels::cross_entropy", loss, kernels::cross_entropy_blocks(options.rows, options.classes),
               divisor_of(options.rows, reduction), [&](double* partials, cudaStream_t stream) {
                 return kernels::cross_entropy(loss.data(), partials, log_probs.data(), logits.data(),
                                               target.data_ptr<std::int64_t>(), options, kernel_type(logits), stream);
               });
  }
  void cross_entropy_grad(const Tensor& grad, const Tensor& log_probs, const Tensor& target, Reduction reduction,
                          double label_smoothing, const Tensor& out) override {
    launch_kernel("kernels::cross_entropy_grad", out.device(), [&](cudaStream_t stream) {
      return kernels::cross_entropy_grad(out.data(), grad.data(), log_probs.data(), target.data_ptr<std::int64_t>(),
                                         options_of(log_probs, reduction, label_smoothing), kernel_type(out), stream);
    });
  }
  void mse_loss(const Tensor& x, const Tensor& target, Reduction reduction, const Tensor& loss) override {
    launch_sum("kernels::mse_loss", loss, kernels::mse_loss_blocks(x.numel()), divisor_of(x.numel(), reduction),
               [&](double* partials, cudaStream_t stream) {
                 return kernels::mse_loss(loss.data(), partials, x.data(), target.data(), x.numel(),
                                          reduction == Reduction::mean, kernel_type(x), stream);
               });
  }
  void mse_loss_grad(const Tensor& grad, const Tensor& x, const Tensor& target, Reduction reduction,
                     const Tensor& out) override {
    launch_kernel("kernels::mse_loss_grad", out.device(), [&](cudaStream_t stream) {
      return kernels::mse_loss_grad(out.data(), grad.data(), x.data(), target.data(), x.numel(),
                                    reduction == Reduction::mean, kernel_type(out), stream);
    });
  }
  void count_correct(const Tensor& logits, const Tensor& target, const Tensor& out) override {
    const std::int64_t rows = logits.sizes()[0];
    const std::int64_t classes = logits.sizes()[1];
    launch_sum("kernels::count_correct", out, kernels::count_correct_blocks(rows, classes), 1,
               [&](double* partials, cudaStream_t stream) {
                 return kernels::count_correct(out.data_ptr<std::int64_t>(), partials, logits.data(),
                                               target.data_ptr<std::int64_t>(), rows, classes, kernel_type(logits),
                                               stream);
               });
  }
};

}  // namespace

LossBackend& cuda_loss() {
  static CudaLoss backend;
  return backend;
}

}  // namespace ddp::raw
