#include "ddp_kernels/elementwise.h"
#include "strided.cuh"

namespace ddp::kernels {
namespace {

/// What a type is added in.
template <class T>
struct Accumulate {
  using Type = T;
};
template <>
struct Accumulate<__half> {
  using Type = float;
};
template <>
struct Accumulate<__nv_bfloat16> {
  using Type = float;
};

template <class T, class A>
__global__ void add_kernel(T* out, const T* a, const T* b, A alpha, Walk<3> walk) {
  for_each(walk, [&](const std::int64_t(&at)[3]) {
    const A sum = Convert<A, T>::apply(a[at[1]]) + alpha * Convert<A, T>::apply(b[at[2]]);
    out[at[0]] = Convert<T, A>::apply(sum);
  });
}

}  // namespace

cudaError_t add(void* out, const Strided& out_strides, const void* a, const Strided& a_strides, const void* b,
                const Strided& b_strides, const Sizes& sizes, double alpha, Type type, cudaStream_t stream) {
  Walk<3> walk;
  if (type == Type::boolean || !walk.set(sizes, {&out_strides, &a_strides, &b_strides})) return cudaErrorInvalidValue;
  if (walk.count == 0) return cudaSuccess;
  return with_type(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    using A = typename Accumulate<T>::Type;
    if constexpr (std::is_same_v<T, bool>) {
      return cudaErrorInvalidValue;
    } else {
      add_kernel<T, A><<<blocks_for(walk.count), kThreads, 0, stream>>>(
          static_cast<T*>(out), static_cast<const T*>(a), static_cast<const T*>(b), static_cast<A>(alpha), walk);
      return cudaGetLastError();
    }
  });
}

}  // namespace ddp::kernels
