#include "ddp_kernels/reduce.h"
#include "map.cuh"

namespace ddp::kernels {
namespace {

template <class U>
__global__ void __launch_bounds__(kMapThreads)
    scatter_kernel(U* out, std::int64_t size, std::int64_t step, const U* grad, const std::int64_t* indices,
                   Walk<3> walk, bool floating) {
  for_each(walk, [&](const std::int64_t(&at)[3]) {
    const std::int64_t which = indices[at[2]];
    if (which >= 0 && which < size) {
      out[at[0] + which * step] = grad[at[1]];
    } else if (floating) {
      out[at[0]] = static_cast<U>(~U{0});  // NaN in every floating-point type
    }
  });
}

}  // namespace

cudaError_t scatter_by_index(const Array& out, const Sizes& out_sizes, int dim, const ConstArray& grad,
                             const ConstArray& indices, Type type, cudaStream_t stream) {
  if (dim < 0 || dim >= out_sizes.rank || out_sizes.rank > kMaxRank || out_sizes.sizes[dim] <= 0) {
    return cudaErrorInvalidValue;
  }
  Sizes sizes = out_sizes;
  sizes.sizes[dim] = 1;
  Walk<3> walk;
  if (!walk.set(sizes, {&out.strides, &grad.strides, &indices.strides}, true)) return cudaErrorInvalidValue;
  if (walk.count == 0) return cudaSuccess;
  return with_type(type, [&](auto* tag) {
    using U = UnsignedOf<sizeof(*tag)>;
    scatter_kernel<U><<<map_blocks(walk.count), kMapThreads, 0, stream>>>(
        static_cast<U*>(out.data), out_sizes.sizes[dim], out.strides.strides[dim], static_cast<const U*>(grad.data),
        static_cast<const std::int64_t*>(indices.data), walk, type <= Type::bfloat16);
    return cudaGetLastError();
  });
}

}  // namespace ddp::kernels
