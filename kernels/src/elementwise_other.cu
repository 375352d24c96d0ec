#include "arithmetic.cuh"
#include "ddp_kernels/elementwise.h"

namespace ddp::kernels {
namespace {

struct Equal {
  template <class C, int Width>
  __device__ void operator()(const C (&values)[2][Width], bool (&results)[Width]) const {
    each(values, results, [](C a, C b) { return a == b; });
  }
};

struct DivGradB {
  template <class C, int Width>
  __device__ void operator()(const C (&values)[3][Width], C (&results)[Width]) const {
    each(values, results, [](C grad, C a, C b) { return -grad * a / (b * b); });
  }
};

}  // namespace

cudaError_t equal_elements(const Array& out, const ConstArray& a, const ConstArray& b, const Sizes& sizes, Type type,
                           cudaStream_t stream) {
  const ConstArray* const in[] = {&a, &b};
  // Bytes 0 and 1 compare as uint8 does.
  return with_numeric(type == Type::boolean ? Type::uint8 : type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    return launch_map<bool, T>(out, in, sizes, Equal{}, stream);
  });
}

cudaError_t div_grad_b(const Array& out, const ConstArray& grad, const ConstArray& a, const ConstArray& b,
                       const Sizes& sizes, Type type, cudaStream_t stream) {
  const ConstArray* const in[] = {&grad, &a, &b};
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    return launch_map<T, T>(out, in, sizes, DivGradB{}, stream);
  });
}

}  // namespace ddp::kernels
