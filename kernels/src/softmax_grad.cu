#include "ddp_kernels/softmax.h"
#include "softmax.cuh"

namespace ddp::kernels {

cudaError_t softmax_grad(void* x_grad, const void* grad, const void* y, const Softmax& shape, Type type,
                         cudaStream_t stream) {
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const SoftmaxBackward<T> body{static_cast<const T*>(grad), static_cast<const T*>(y), static_cast<T*>(x_grad),
                                  shape.logarithm};
    return launch_softmax(body, shape.outer, shape.length, shape.inner, stream);
  });
}

}  // namespace ddp::kernels
