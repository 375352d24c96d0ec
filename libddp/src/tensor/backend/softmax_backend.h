#pragma once

#include "tensor/backend/backend.h"
#include "tensor/loss.h"

namespace ddp::raw {

/// All tensors of a call are row-major, of one device, floating-point dtype and size, with at least one
/// element, and seen as [outer, length, inner]; the function runs along `length`.
struct SoftmaxShape {
  std::int64_t outer;
  std::int64_t length;
  std::int64_t inner;
};

class SoftmaxBackend {
 public:
  virtual ~SoftmaxBackend() = default;
  virtual void softmax(const Tensor& /*x*/, const SoftmaxShape& /*shape*/, bool /*logarithm*/, const Tensor& out) {
    missing("softmax", out);
  }
  virtual void softmax_grad(const Tensor& /*grad*/, const Tensor& /*y*/, const SoftmaxShape& /*shape*/,
                            bool /*logarithm*/, const Tensor& out) {
    missing("softmax_grad", out);
  }

 private:
  [[noreturn]] static void missing(std::string_view operation, const Tensor& where) {
    not_available("softmax", operation, where.device());
  }
};

SoftmaxBackend& cpu_softmax();
SoftmaxBackend& cuda_softmax();
inline SoftmaxBackend& softmax_backend(Device device) { return device.is_cuda() ? cuda_softmax() : cpu_softmax(); }

}  // namespace ddp::raw
