#include "tensor/cpu/elementwise.h"

#include "tensor/backend/elementwise_backend.h"
#include "tensor/cpu/arithmetic.h"
#include "tensor/cpu/strided_loop.h"
#include "tensor/dispatch.h"

namespace ddp::raw {

namespace {

class CpuElementwise : public ElementwiseBackend {
 public:
  void unary(Unary op, const Tensor& x, const Tensor& out) override { cpu::unary(op, x, out); }
  void unary_grad(UnaryGrad op, const Tensor& grad, const Tensor& saved, const Tensor& out) override {
    cpu::unary_grad(op, grad, saved, out);
  }
  void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& out) override { cpu::binary(op, a, b, out); }
  void binary_scalar(Binary op, const Tensor& x, double scalar, bool reversed, const Tensor& out) override {
    cpu::binary_scalar(op, x, scalar, reversed, out);
  }

  void axpy(const Tensor& y, const Tensor& x, double alpha) override {
    dispatch_numeric("axpy_", y.dtype(), [&]<class T>(TypeTag<T>) {
      using C = ComputeType<T>;
      const C factor = cpu::store<C>(alpha);
      cpu::map<T, T, T>(y, [factor](C to, C from) { return cpu::add(to, cpu::mul(factor, from)); }, y, x);
    });
  }

  void equal_elements(const Tensor& a, const Tensor& b, const Tensor& out) override {
    dispatch_all("equal_elements", a.dtype(), [&]<class T>(TypeTag<T>) {
      using C = ComputeType<T>;
      cpu::map<bool, T, T>(out, [](C x, C y) { return x == y; }, a, b);
    });
  }

  void div_grad_b(const Tensor& grad, const Tensor& a, const Tensor& b, const Tensor& out) override {
    dispatch_floating("div_grad_b", grad.dtype(), [&]<class T>(TypeTag<T>) {
      using C = ComputeType<T>;
      cpu::map<T, T, T, T>(out, [](C g, C x, C y) { return -g * x / (y * y); }, grad, a, b);
    });
  }
};

}  // namespace

ElementwiseBackend& cpu_elementwise() {
  static CpuElementwise backend;
  return backend;
}

}  // namespace ddp::raw
