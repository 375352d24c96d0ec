#include "ddp_kernels/elementwise.h"
#include "strided.cuh"

namespace ddp::kernels {
namespace {

template <class To, class From>
__global__ void copy_kernel(To* destination, const From* source, Walk<2> walk) {
  for_each(walk, [&](const std::int64_t(&at)[2]) { destination[at[0]] = Convert<To, From>::apply(source[at[1]]); });
}

}  // namespace

cudaError_t copy(void* destination, Type to, const Strided& destination_strides, const void* source, Type from,
                 const Strided& source_strides, const Sizes& sizes, cudaStream_t stream) {
  Walk<2> walk;
  if (!walk.set(sizes, {&destination_strides, &source_strides})) return cudaErrorInvalidValue;
  if (walk.count == 0) return cudaSuccess;
  return with_type(to, [&](auto* to_tag) {
    return with_type(from, [&](auto* from_tag) {
      using To = std::remove_pointer_t<decltype(to_tag)>;
      using From = std::remove_pointer_t<decltype(from_tag)>;
      copy_kernel<To, From><<<blocks_for(walk.count), kThreads, 0, stream>>>(static_cast<To*>(destination),
                                                                             static_cast<const From*>(source), walk);
      return cudaGetLastError();
    });
  });
}

}  // namespace ddp::kernels
