#pragma once

#include "tensor/backend/backend.h"
#include "tensor/conv.h"

namespace ddp::raw {

/// All tensors of a call are on one device and of one floating-point dtype, inputs row-major; sizes fit each
/// other. `out` has at least one element and overlaps no input.
class ConvBackend {
 public:
  virtual ~ConvBackend() = default;
  virtual void conv2d(const Tensor& /*x*/, const Tensor& /*weight*/, const Tensor& /*bias*/,
                      const ConvParams& /*params*/, const Tensor& out) {
    missing("conv2d", out);
  }
  virtual void conv2d_input_grad(const Tensor& /*grad*/, const Tensor& /*weight*/, const ConvParams& /*params*/,
                                 const Tensor& out) {
    missing("conv2d_input_grad", out);
  }
  /// `out` may be strided.
  virtual void conv2d_weight_grad(const Tensor& /*grad*/, const Tensor& /*x*/, const ConvParams& /*params*/,
                                  const Tensor& out, bool /*accumulate*/) {
    missing("conv2d_weight_grad", out);
  }
  /// `out` may be strided.
  virtual void conv2d_bias_grad(const Tensor& /*grad*/, const Tensor& out, bool /*accumulate*/) {
    missing("conv2d_bias_grad", out);
  }

 private:
  [[noreturn]] static void missing(std::string_view operation, const Tensor& where) {
    not_available("conv", operation, where.device());
  }
};

ConvBackend& cpu_conv();
ConvBackend& cuda_conv();
inline ConvBackend& conv_backend(Device device) { return device.is_cuda() ? cuda_conv() : cpu_conv(); }

}  // namespace ddp::raw
