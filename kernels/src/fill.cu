#include "ddp_kernels/elementwise.h"
#include "strided.cuh"

namespace ddp::kernels {
namespace {

template <class T>
__global__ void fill_kernel(T* x, Walk<1> walk, T value) {
  for_each(walk, [&](const std::int64_t(&at)[1]) { x[at[0]] = value; });
}

}  // namespace

cudaError_t fill(void* x, Type type, const Sizes& sizes, const Strided& strides, double value, cudaStream_t stream) {
  Walk<1> walk;
  if (!walk.set(sizes, {&strides})) return cudaErrorInvalidValue;
  if (walk.count == 0) return cudaSuccess;
  return with_type(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    fill_kernel<T>
        <<<blocks_for(walk.count), kThreads, 0, stream>>>(static_cast<T*>(x), walk, Convert<T, double>::apply(value));
    return cudaGetLastError();
  });
}

}  // namespace ddp::kernels
