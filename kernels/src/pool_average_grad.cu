#include "pool.cuh"

namespace ddp::kernels {
namespace {

template <class T, class I, class Axis>
__global__ void __launch_bounds__(kPoolThreads)
    average_grad_kernel(const T* grad, T* out, I count, Axes<Axis> axes, I divisor) {
  for_items<I>(count, [&](I i) {
    const Place<I> at(i, axes.rows.inputs, axes.columns.inputs);
    const Range<I> rows = axes.rows.holders(at.row);
    const Range<I> columns = axes.columns.holders(at.column);
    const I width = axes.columns.outputs;
    const I base = at.plane * axes.rows.outputs * width;
    Compute<T> sum = 0;
    for (I p = rows.begin; p < rows.end; ++p) {
      const Range<I> tall = axes.rows.window(p);
      for (I q = columns.begin; q < columns.end; ++q) {
        const Range<I> wide = axes.columns.window(q);
        const I size = divisor != 0 ? divisor : (tall.end - tall.begin) * (wide.end - wide.begin);
        sum += load_of(grad[base + p * width + q]) / static_cast<Compute<T>>(size);
      }
    }
    out[i] = store_of<T>(sum);
  });
}

template <class T, class I, class Axis>
cudaError_t launch_grad(const void* grad, void* out, const PoolShape& s, const Axes<Axis>& axes, std::int64_t divisor,
                        cudaStream_t stream) {
  const std::int64_t count = s.planes * s.h * s.w;
  average_grad_kernel<T, I, Axis><<<blocks_of(count, kPoolThreads), kPoolThreads, 0, stream>>>(
      static_cast<const T*>(grad), static_cast<T*>(out), static_cast<I>(count), axes, static_cast<I>(divisor));
  return cudaGetLastError();
}

}  // namespace

cudaError_t average_pool_grad(const void* grad, void* out, const PoolShape& shape, const PoolWindow& window,
                              bool count_padding, Type type, cudaStream_t stream) {
  if (shape.planes * shape.h * shape.w == 0) return cudaSuccess;
  const std::int64_t divisor = divisor_of(window, count_padding);
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    if (narrow(shape) && narrow(window) && fits_32_bits(divisor)) {
      return launch_grad<T, std::int32_t>(grad, out, shape, regular_axes<std::int32_t>(shape, window), divisor, stream);
    }
    return launch_grad<T, std::int64_t>(grad, out, shape, regular_axes<std::int64_t>(shape, window), divisor, stream);
  });
}

cudaError_t adaptive_average_pool_grad(const void* grad, void* out, const PoolShape& shape, Type type,
                                       cudaStream_t stream) {
  if (shape.planes * shape.h * shape.w == 0) return cudaSuccess;
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    return narrow(shape)
               ? launch_grad<T, std::int32_t>(grad, out, shape, adaptive_axes<std::int32_t>(shape), 0, stream)
               : launch_grad<T, std::int64_t>(grad, out, shape, adaptive_axes<std::int64_t>(shape), 0, stream);
  });
}

}  // namespace ddp::kernels
