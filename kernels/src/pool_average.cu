#include "pool.cuh"

namespace ddp::kernels {
namespace {

/// `divisor` 0: the size of the window.
template <class T, class I, class Axis>
__global__ void __launch_bounds__(kPoolThreads)
    average_kernel(const T* x, T* out, I count, Axes<Axis> axes, I divisor) {
  for_items<I>(count, [&](I i) {
    const Place<I> at(i, axes.rows.outputs, axes.columns.outputs);
    const Range<I> rows = axes.rows.window(at.row);
    const Range<I> columns = axes.columns.window(at.column);
    const I width = axes.columns.inputs;
    const T* plane = x + at.plane * axes.rows.inputs * width;
    Compute<T> sum = 0;
    for (I y = rows.begin; y < rows.end; ++y) {
      for (I c = columns.begin; c < columns.end; ++c) sum += load_of(plane[y * width + c]);
    }
    const I size = divisor != 0 ? divisor : (rows.end - rows.begin) * (columns.end - columns.begin);
    out[i] = store_of<T>(sum / static_cast<Compute<T>>(size));
  });
}

/// The same with a warp for each output, for large windows.
template <class T, class I, class Axis>
__global__ void __launch_bounds__(kPoolThreads)
    wide_average_kernel(const T* x, T* out, I count, Axes<Axis> axes, I divisor) {
  constexpr unsigned kWarps = kPoolThreads / 32;
  const unsigned lane = threadIdx.x % 32;
  const I step = static_cast<I>(gridDim.x * kWarps);
  for (I i = static_cast<I>(blockIdx.x * kWarps + threadIdx.x / 32); i < count; i += step) {
    const Place<I> at(i, axes.rows.outputs, axes.columns.outputs);
    const Range<I> rows = axes.rows.window(at.row);
    const Range<I> columns = axes.columns.window(at.column);
    const I width = axes.columns.inputs;
    const I across = columns.end - columns.begin;
    const I size = (rows.end - rows.begin) * across;
    const T* first = x + (at.plane * axes.rows.inputs + rows.begin) * width + columns.begin;
    Compute<T> sum = 0;
    if (across == width) {  // whole lines: one run of memory
      for (I k = static_cast<I>(lane); k < size; k += 32) sum += load_of(first[k]);
    } else {
      for (I k = static_cast<I>(lane); k < size; k += 32) {
        const I line = k / across;
        sum += load_of(first[line * width + k - line * across]);
      }
    }
    sum = merged_lanes<SumOf<Compute<T>>>(sum, 32);
    if (lane == 0) out[i] = store_of<T>(sum / static_cast<Compute<T>>(divisor != 0 ? divisor : size));
  }
}

/// From so many elements a window on a warp takes it together.
constexpr std::int64_t kWideWindow = 64;

template <class T, class I, class Axis>
cudaError_t launch(const void* x, void* out, const PoolShape& s, const Axes<Axis>& axes, std::int64_t divisor,
                   std::int64_t window, cudaStream_t stream) {
  const std::int64_t count = s.planes * s.p * s.q;
  const auto* from = static_cast<const T*>(x);
  auto* to = static_cast<T*>(out);
  if (window >= kWideWindow) {
    wide_average_kernel<T, I, Axis><<<blocks_of(count, kPoolThreads / 32), kPoolThreads, 0, stream>>>(
        from, to, static_cast<I>(count), axes, static_cast<I>(divisor));
  } else {
    average_kernel<T, I, Axis><<<blocks_of(count, kPoolThreads), kPoolThreads, 0, stream>>>(
        from, to, static_cast<I>(count), axes, static_cast<I>(divisor));
  }
  return cudaGetLastError();
}

/// A window inside the plane has at most so many elements.
std::int64_t most_elements(const PoolShape& s, const PoolWindow& w) {
  return std::min(s.h, w.kernel_h) * std::min(s.w, w.kernel_w);
}

}  // namespace

cudaError_t average_pool(const void* x, void* out, const PoolShape& shape, const PoolWindow& window, bool count_padding,
                         Type type, cudaStream_t stream) {
  if (shape.planes * shape.p * shape.q == 0) return cudaSuccess;
  const std::int64_t divisor = divisor_of(window, count_padding);
  const std::int64_t most = most_elements(shape, window);
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    if (narrow(shape) && narrow(window) && fits_32_bits(divisor)) {
      return launch<T, std::int32_t>(x, out, shape, regular_axes<std::int32_t>(shape, window), divisor, most, stream);
    }
    return launch<T, std::int64_t>(x, out, shape, regular_axes<std::int64_t>(shape, window), divisor, most, stream);
  });
}

cudaError_t adaptive_average_pool(const void* x, void* out, const PoolShape& shape, Type type, cudaStream_t stream) {
  if (shape.planes * shape.p * shape.q == 0) return cudaSuccess;
  const std::int64_t typical = (shape.h * shape.w) / (shape.p * shape.q);
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    return narrow(shape)
               ? launch<T, std::int32_t>(x, out, shape, adaptive_axes<std::int32_t>(shape), 0, typical, stream)
               : launch<T, std::int64_t>(x, out, shape, adaptive_axes<std::int64_t>(shape), 0, typical, stream);
  });
}

}  // namespace ddp::kernels
