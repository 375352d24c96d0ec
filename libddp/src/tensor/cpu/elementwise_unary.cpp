#include "tensor/cpu/arithmetic.h"
#include "tensor/cpu/elementwise.h"
#include "tensor/cpu/strided_loop.h"
#include "tensor/cpu/vector_math.h"
#include "tensor/dispatch.h"

namespace ddp::raw::cpu {

namespace {

template <class T>
void floating_unary(Unary op, const Tensor& x, const Tensor& out) {
  using C = ComputeType<T>;
  switch (op) {
    case Unary::neg:
      return map<T, T>(out, [](C v) { return -v; }, x);
    case Unary::relu:
      return map<T, T>(out, [](C v) { return v < C{0} ? C{0} : v; }, x);  // NaN stays
    case Unary::gelu:
      return map<T, T>(out, [](C v) { return v * normal_cdf(v); }, x);
    case Unary::sigmoid:
      return map<T, T>(out, [](C v) { return sigmoid_of(v); }, x);
    case Unary::tanh:
      return map<T, T>(out, [](C v) { return tanh_of(v); }, x);
    case Unary::exp:
      return map<T, T>(out, [](C v) { return exp_of(v); }, x);
    case Unary::log:
      return map<T, T>(out, [](C v) { return log_of(v); }, x);
    case Unary::sqrt:
      return map<T, T>(out, [](C v) { return std::sqrt(v); }, x);
    case Unary::reciprocal:
      return map<T, T>(out, [](C v) { return C{1} / v; }, x);
    case Unary::abs:
      return map<T, T>(out, [](C v) { return absolute(v); }, x);
    case Unary::square:
      return map<T, T>(out, [](C v) { return v * v; }, x);
  }
}

}  // namespace

void unary(Unary op, const Tensor& x, const Tensor& out) {
  if (is_floating_point(x.dtype())) {
    dispatch_floating("unary", x.dtype(), [&]<class T>(TypeTag<T>) { floating_unary<T>(op, x, out); });
    return;
  }
  dispatch_integral("unary", x.dtype(), [&]<class T>(TypeTag<T>) {
    if (op == Unary::neg) {
      map<T, T>(out, [](T v) { return sub(T{0}, v); }, x);
    } else if (op == Unary::abs) {
      map<T, T>(out, [](T v) { return absolute(v); }, x);
    } else {
      map<T, T>(out, [](T v) { return mul(v, v); }, x);
    }
  });
}

}  // namespace ddp::raw::cpu
