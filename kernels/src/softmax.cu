#include "ddp_kernels/softmax.h"

#include "softmax.cuh"

namespace ddp::kernels {

cudaError_t softmax(void* y, const void* x, const Softmax& shape, Type type, cudaStream_t stream) {
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const SoftmaxForward<T> body{static_cast<const T*>(x), static_cast<T*>(y), shape.logarithm};
    return launch_softmax(body, shape.outer, shape.length, shape.inner, stream);
  });
}

}  // namespace ddp::kernels
