// The operation is chosen in the kernel, outside of the loop over a pack: all threads agree, so it costs a few
// cycles per 16 bytes, and there is one kernel per type instead of one per type and operation.
#include "arithmetic.cuh"
#include "ddp_kernels/elementwise.h"

namespace ddp::kernels {
namespace {

struct Floating {
  Unary op;

  template <class C, int Width>
  __device__ void operator()(const C (&values)[1][Width], C (&results)[Width]) const {
    switch (op) {
      case Unary::neg:
        return each(values, results, [](C v) { return -v; });
      case Unary::relu:
        return each(values, results, [](C v) { return v < C{0} ? C{0} : v; });  // NaN stays
      case Unary::gelu:
        return each(values, results, [](C v) { return v * normal_cdf(v); });
      case Unary::sigmoid:
        return each(values, results, [](C v) { return C{1} / (C{1} + exp_of(-v)); });
      case Unary::tanh:
        return each(values, results, [](C v) { return tanh_of(v); });
      case Unary::exp:
        return each(values, results, [](C v) { return exp_of(v); });
      case Unary::log:
        return each(values, results, [](C v) { return log_of(v); });
      case Unary::sqrt:
        return each(values, results, [](C v) { return sqrt_of(v); });
      case Unary::reciprocal:
        return each(values, results, [](C v) { return C{1} / v; });
      case Unary::abs:
        return each(values, results, [](C v) { return absolute(v); });
      case Unary::square:
        return each(values, results, [](C v) { return v * v; });
    }
  }
};

struct Whole {
  Unary op;

  template <class C, int Width>
  __device__ void operator()(const C (&values)[1][Width], C (&results)[Width]) const {
    if (op == Unary::neg) {
      each(values, results, [](C v) { return minus(C{0}, v); });
    } else if (op == Unary::abs) {
      each(values, results, [](C v) { return absolute(v); });
    } else {
      each(values, results, [](C v) { return times(v, v); });
    }
  }
};

}  // namespace

cudaError_t unary(Unary op, const Array& out, const ConstArray& x, const Sizes& sizes, Type type, cudaStream_t stream) {
  const ConstArray* const in[] = {&x};
  if (type <= Type::bfloat16) {
    return with_floating(type, [&](auto* tag) {
      using T = std::remove_pointer_t<decltype(tag)>;
      return launch_map<T, T>(out, in, sizes, Floating{op}, stream);
    });
  }
  if (op != Unary::neg && op != Unary::abs && op != Unary::square) return cudaErrorInvalidValue;
  return with_integral(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    return launch_map<T, T>(out, in, sizes, Whole{op}, stream);
  });
}

}  // namespace ddp::kernels
