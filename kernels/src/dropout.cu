#include "philox.cuh"

namespace ddp::kernels {
namespace {

/// `Dense`: x is row-major, and all arrays may be read and written in packs where `aligned`.
template <class T, bool Dense>
__global__ void __launch_bounds__(kMapThreads)
    dropout_kernel(T* y, std::uint8_t* mask, const T* x, Walk<1> walk, std::uint64_t threshold, Compute<T> scale,
                   Philox state, bool aligned) {
  using C = Compute<T>;
  const std::int64_t count = walk.count;
  const std::int64_t blocks = (count + 3) / 4;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kMapThreads;
  for (std::int64_t b = static_cast<std::int64_t>(blockIdx.x) * kMapThreads + threadIdx.x; b < blocks; b += step) {
    const std::int64_t first = b * 4;
    Pack<T, 4> values;
    if (Dense && aligned && first + 4 <= count) {
      values = *reinterpret_cast<const Pack<T, 4>*>(x + first);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        std::int64_t at[1] = {first + i};
        if (first + i >= count) {
          values.values[i] = Convert<T, C>::apply(0);
          continue;
        }
        if (!Dense) walk.offsets(first + i, at);
        values.values[i] = x[at[0]];
      }
    }
    const PhiloxWords words = philox_block(state, b);
    Pack<std::uint8_t, 4> kept;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool keep = words.w[i] >= threshold;
      kept.values[i] = keep ? 1 : 0;
      const C scaled = Convert<C, T>::apply(values.values[i]) * scale;
      values.values[i] = Convert<T, C>::apply(keep ? scaled : C{0});
    }
    write_elements<T, 4>(y, first, count, values, aligned);
    write_elements<std::uint8_t, 4>(mask, first, count, kept, aligned);
  }
}

template <class T, int Width>
__global__ void __launch_bounds__(kMapThreads)
    dropout_grad_kernel(T* out, const T* grad, const std::uint8_t* mask, MapPlan<3> plan, Compute<T> scale) {
  using C = Compute<T>;
  const auto one = [scale](T value, std::uint8_t keep) {
    return Convert<T, C>::apply(keep != 0 ? Convert<C, T>::apply(value) * scale : C{0});
  };
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kMapThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kMapThreads + threadIdx.x; i < plan.walk.count;
       i += step) {
    std::int64_t at[3];
    plan.walk.offsets(i, at);
    Pack<T, Width> values;
    Pack<std::uint8_t, Width> kept;
    if (Width > 1 && plan.repeated[1]) {
#pragma unroll
      for (int w = 0; w < Width; ++w) values.values[w] = grad[at[1]];
    } else {
      values = *reinterpret_cast<const Pack<T, Width>*>(grad + at[1]);
    }
    if (Width > 1 && plan.repeated[2]) {
#pragma unroll
      for (int w = 0; w < Width; ++w) kept.values[w] = mask[at[2]];
    } else {
      kept = *reinterpret_cast<const Pack<std::uint8_t, Width>*>(mask + at[2]);
    }
#pragma unroll
    for (int w = 0; w < Width; ++w) values.values[w] = one(values.values[w], kept.values[w]);
    *reinterpret_cast<Pack<T, Width>*>(out + at[0]) = values;
  }
  if constexpr (Width > 1) {
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x < plan.tail) {
      const std::int64_t i = plan.whole + threadIdx.x;
      out[i] = one(grad[plan.repeated[1] ? 0 : i], mask[plan.repeated[2] ? 0 : i]);
    }
  }
}

}  // namespace

cudaError_t dropout(void* y, std::uint8_t* mask, const ConstArray& x, const Sizes& sizes, Type type,
                    std::uint64_t threshold, double scale, Philox state, cudaStream_t stream) {
  Walk<1> walk;
  if (!walk.set(sizes, {&x.strides})) return cudaErrorInvalidValue;
  if (walk.count == 0) return cudaSuccess;
  const bool dense = walk.rank == 0 || (walk.rank == 1 && walk.strides[0][0] == 1);
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const bool aligned =
        aligned_for<T, 4>(y) && aligned_for<std::uint8_t, 4>(mask) && (!dense || aligned_for<T, 4>(x.data));
    const unsigned blocks = map_blocks((walk.count + 3) / 4);
    const auto kernel = dense ? dropout_kernel<T, true> : dropout_kernel<T, false>;
    kernel<<<blocks, kMapThreads, 0, stream>>>(static_cast<T*>(y), mask, static_cast<const T*>(x.data), walk, threshold,
                                               static_cast<Compute<T>>(scale), state, aligned);
    return cudaGetLastError();
  });
}

cudaError_t dropout_grad(const Array& out, const ConstArray& grad, const ConstArray& mask, const Sizes& sizes,
                         Type type, double scale, cudaStream_t stream) {
  MapPlan<3> plan;
  if (!plan.walk.set(sizes, {&out.strides, &grad.strides, &mask.strides}, true)) return cudaErrorInvalidValue;
  if (plan.walk.count == 0) return cudaSuccess;
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    plan.try_packs(4, {out.data, grad.data, mask.data}, {sizeof(T), sizeof(T), 1});
    const auto kernel = plan.width > 1 ? dropout_grad_kernel<T, 4> : dropout_grad_kernel<T, 1>;
    kernel<<<map_blocks(plan.walk.count), kMapThreads, 0, stream>>>(
        static_cast<T*>(out.data), static_cast<const T*>(grad.data), static_cast<const std::uint8_t*>(mask.data), plan,
        static_cast<Compute<T>>(scale));
    return cudaGetLastError();
  });
}

}  // namespace ddp::kernels
