#include "ddp_kernels/copy.h"
#include "map.cuh"

namespace ddp::kernels {
namespace {

/// An unsigned number as wide as an element, with the bits of `value` in type T.
template <class U, class T>
U bits_of(double value) {
  static_assert(sizeof(U) == sizeof(T));
  union {
    T element;
    U bits;
  } both{Convert<T, double>::apply(value)};
  return both.bits;
}

template <class U, int Width>
__global__ void __launch_bounds__(kMapThreads) fill_kernel(U* x, MapPlan<1> plan, U value) {
  Pack<U, Width> pack;
#pragma unroll
  for (int w = 0; w < Width; ++w) pack.values[w] = value;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kMapThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kMapThreads + threadIdx.x; i < plan.walk.count;
       i += step) {
    std::int64_t at[1];
    plan.walk.offsets(i, at);
    *reinterpret_cast<Pack<U, Width>*>(x + at[0]) = pack;
  }
  if (Width > 1 && blockIdx.x == gridDim.x - 1 && threadIdx.x < plan.tail) x[plan.whole + threadIdx.x] = value;
}

template <class U>
cudaError_t launch_fill(const Array& x, const Sizes& sizes, U value, cudaStream_t stream) {
  MapPlan<1> plan;
  if (!plan.walk.set(sizes, {&x.strides}, true)) return cudaErrorInvalidValue;
  if (plan.walk.count == 0) return cudaSuccess;
  constexpr int kWidth = 16 / sizeof(U);
  plan.try_packs(kWidth, {x.data}, {sizeof(U)});
  U* to = static_cast<U*>(x.data);
  const unsigned blocks = map_blocks(plan.walk.count);
  if (plan.width > 1) {
    fill_kernel<U, kWidth><<<blocks, kMapThreads, 0, stream>>>(to, plan, value);
  } else {
    fill_kernel<U, 1><<<blocks, kMapThreads, 0, stream>>>(to, plan, value);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t fill(const Array& x, Type type, const Sizes& sizes, double value, cudaStream_t stream) {
  return with_type(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    using U = UnsignedOf<sizeof(T)>;
    return launch_fill<U>(x, sizes, bits_of<U, T>(value), stream);
  });
}

}  // namespace ddp::kernels
