#include "tensor/cpu/elementwise.h"
#include "tensor/cpu/strided_loop.h"
#include "tensor/cpu/vector_math.h"
#include "tensor/dispatch.h"

namespace ddp::raw::cpu {

namespace {

template <class T>
void typed(UnaryGrad op, const Tensor& grad, const Tensor& saved, const Tensor& out) {
  using C = ComputeType<T>;
  const auto run = [&](auto function) { map<T, T, T>(out, function, grad, saved); };
  switch (op) {
    case UnaryGrad::relu:
      return run([](C g, C y) { return y <= C{0} ? C{0} : g; });
    case UnaryGrad::gelu:
      return run([](C g, C x) { return g * (normal_cdf(x) + x * normal_pdf(x)); });
    case UnaryGrad::sigmoid:
      return run([](C g, C y) { return g * y * (C{1} - y); });
    case UnaryGrad::tanh:
      return run([](C g, C y) { return g * (C{1} - y * y); });
    case UnaryGrad::exp:
      return run([](C g, C y) { return g * y; });
    case UnaryGrad::log:
      return run([](C g, C x) { return g / x; });
    case UnaryGrad::sqrt:
      return run([](C g, C y) { return g / (y + y); });
  }
}

}  // namespace

void unary_grad(UnaryGrad op, const Tensor& grad, const Tensor& saved, const Tensor& out) {
  dispatch_floating("unary_grad", grad.dtype(), [&]<class T>(TypeTag<T>) { typed<T>(op, grad, saved, out); });
}

}  // namespace ddp::raw::cpu
