#pragma once

#include "tensor/backend/backend.h"
#include "tensor/norm.h"

namespace ddp::raw {

/// x, y and their gradients are row-major and of one floating-point dtype. Everything per channel or per row
/// (statistics, weight, bias and their gradients) is row-major and of the dtype of statistics: float64 for
/// float64, else float32. weight and bias may be undefined, results may not.
class NormBackend {
 public:
  virtual ~NormBackend() = default;
  /// x as [n, channels, area], at least one element: mean, biased variance.
  virtual void batch_statistics(const Tensor& /*x*/, const Tensor& mean, const Tensor& /*variance*/) {
    missing("batch_norm", mean);
  }
  /// y = (x - mean) * invstd * weight + bias.
  virtual void batch_normalize(const Tensor& /*x*/, const Tensor& /*mean*/, const Tensor& /*invstd*/,
                               const Tensor& /*weight*/, const Tensor& /*bias*/, const Tensor& y) {
    missing("batch_norm", y);
  }
  /// weight_grad = sum of grad * (x - mean) * invstd, bias_grad = sum of grad, per channel; x_grad, where
  /// `training` takes mean and invstd for functions of x.
  virtual void batch_norm_grad(const Tensor& /*grad*/, const Tensor& /*x*/, const Tensor& /*mean*/,
                               const Tensor& /*invstd*/, const Tensor& /*weight*/, bool /*training*/,
                               const Tensor& x_grad, const Tensor& /*weight_grad*/, const Tensor& /*bias_grad*/) {
    missing("batch_norm_grad", x_grad);
  }
  /// x as [rows, length] with mean and invstd of `rows` elements, weight and bias of `length`.
  virtual void layer_norm(const Tensor& /*x*/, const Tensor& /*weight*/, const Tensor& /*bias*/, double /*eps*/,
                          const Tensor& y, const Tensor& /*mean*/, const Tensor& /*invstd*/) {
    missing("layer_norm", y);
  }
  virtual void layer_norm_grad(const Tensor& /*grad*/, const Tensor& /*x*/, const Tensor& /*weight*/,
                               const Tensor& /*mean*/, const Tensor& /*invstd*/, const Tensor& x_grad,
                               const Tensor& /*weight_grad*/, const Tensor& /*bias_grad*/) {
    missing("layer_norm_grad", x_grad);
  }

 private:
  [[noreturn]] static void missing(std::string_view operation, const Tensor& where) {
    not_available("norm", operation, where.device());
  }
};

NormBackend& cpu_norm();
NormBackend& cuda_norm();
inline NormBackend& norm_backend(Device device) { return device.is_cuda() ? cuda_norm() : cpu_norm(); }

}  // namespace ddp::raw
