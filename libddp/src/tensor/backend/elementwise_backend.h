#pragma once

#include "tensor/backend/backend.h"
#include "tensor/elementwise.h"

namespace ddp::raw {

/// All tensors of a call are on one device and have the sizes of `out` (or of the tensor that is changed);
/// inputs may have any strides, 0 where broadcast. An input is either the very memory of the output or does
/// not meet it.
class ElementwiseBackend {
 public:
  virtual ~ElementwiseBackend() = default;
  virtual void unary(Unary /*op*/, const Tensor& /*x*/, const Tensor& out) { missing("unary", out); }
  virtual void unary_grad(UnaryGrad /*op*/, const Tensor& /*grad*/, const Tensor& /*saved*/, const Tensor& out) {
    missing("unary_grad", out);
  }
  virtual void binary(Binary /*op*/, const Tensor& /*a*/, const Tensor& /*b*/, const Tensor& out) {
    missing("binary", out);
  }
  virtual void binary_scalar(Binary /*op*/, const Tensor& /*x*/, double /*scalar*/, bool /*reversed*/,
                             const Tensor& out) {
    missing("binary_scalar", out);
  }
  /// y += alpha * x.
  virtual void axpy(const Tensor& y, const Tensor& /*x*/, double /*alpha*/) { missing("axpy_", y); }
  virtual void equal_elements(const Tensor& /*a*/, const Tensor& /*b*/, const Tensor& out) {
    missing("equal_elements", out);
  }
  virtual void div_grad_b(const Tensor& /*grad*/, const Tensor& /*a*/, const Tensor& /*b*/, const Tensor& out) {
    missing("div_grad_b", out);
  }

 private:
  [[noreturn]] static void missing(std::string_view operation, const Tensor& where) {
    not_available("elementwise", operation, where.device());
  }
};

ElementwiseBackend& cpu_elementwise();
ElementwiseBackend& cuda_elementwise();
inline ElementwiseBackend& elementwise_backend(Device device) {
  return device.is_cuda() ? cuda_elementwise() : cpu_elementwise();
}

}  // namespace ddp::raw
