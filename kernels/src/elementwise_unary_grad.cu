#include "arithmetic.cuh"
#include "ddp_kernels/elementwise.h"

namespace ddp::kernels {
namespace {

struct Gradient {
  UnaryGrad op;

  template <class C, int Width>
  __device__ void operator()(const C (&values)[2][Width], C (&results)[Width]) const {
    switch (op) {
      case UnaryGrad::relu:
        return each(values, results, [](C g, C y) { return y <= C{0} ? C{0} : g; });
      case UnaryGrad::gelu:
        return each(values, results, [](C g, C x) { return g * (normal_cdf(x) + x * normal_pdf(x)); });
      case UnaryGrad::sigmoid:
        return each(values, results, [](C g, C y) { return g * y * (C{1} - y); });
      case UnaryGrad::tanh:
        return each(values, results, [](C g, C y) { return g * (C{1} - y * y); });
      case UnaryGrad::exp:
        return each(values, results, [](C g, C y) { return g * y; });
      case UnaryGrad::log:
        return each(values, results, [](C g, C x) { return g / x; });
      case UnaryGrad::sqrt:
        return each(values, results, [](C g, C y) { return g / (y + y); });
    }
  }
};

}  // namespace

cudaError_t unary_grad(UnaryGrad op, const Array& out, const ConstArray& grad, const ConstArray& saved,
                       const Sizes& sizes, Type type, cudaStream_t stream) {
  const ConstArray* const in[] = {&grad, &saved};
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    return launch_map<T, T>(out, in, sizes, Gradient{op}, stream);
  });
}

}  // namespace ddp::kernels
