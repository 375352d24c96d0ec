#include "tensor/cpu/arithmetic.h"
#include "tensor/cpu/elementwise.h"
#include "tensor/cpu/strided_loop.h"
#include "tensor/dispatch.h"

namespace ddp::raw::cpu {

void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& out) {
  dispatch_numeric("binary", a.dtype(), [&]<class T>(TypeTag<T>) {
    using C = ComputeType<T>;
    switch (op) {
      case Binary::add:
        return map<T, T, T>(out, [](C x, C y) { return add(x, y); }, a, b);
      case Binary::sub:
        return map<T, T, T>(out, [](C x, C y) { return sub(x, y); }, a, b);
      case Binary::mul:
        return map<T, T, T>(out, [](C x, C y) { return mul(x, y); }, a, b);
      case Binary::div:
        if constexpr (!std::is_integral_v<C>) map<T, T, T>(out, [](C x, C y) { return x / y; }, a, b);
        return;
    }
  });
}

void binary_scalar(Binary op, const Tensor& x, double scalar, bool reversed, const Tensor& out) {
  dispatch_numeric("binary_scalar", x.dtype(), [&]<class T>(TypeTag<T>) {
    using C = ComputeType<T>;
    const C s = store<C>(scalar);
    switch (op) {
      case Binary::add:
        return map<T, T>(out, [s](C v) { return add(v, s); }, x);
      case Binary::mul:
        return map<T, T>(out, [s](C v) { return mul(v, s); }, x);
      case Binary::sub:
        if (reversed) return map<T, T>(out, [s](C v) { return sub(s, v); }, x);
        return map<T, T>(out, [s](C v) { return sub(v, s); }, x);
      case Binary::div:
        if constexpr (!std::is_integral_v<C>) {
          if (reversed) return map<T, T>(out, [s](C v) { return s / v; }, x);
          return map<T, T>(out, [s](C v) { return v / s; }, x);
        }
        return;
    }
  });
}

}  // namespace ddp::raw::cpu
