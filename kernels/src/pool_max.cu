#include "pool.cuh"

namespace ddp::kernels {
namespace {

template <class C>
__device__ bool beats(C challenger, C best) {
  return challenger > best || challenger != challenger;
}

template <class T, class I>
__global__ void __launch_bounds__(kPoolThreads)
    max_kernel(const T* x, T* values, std::int32_t* indices, I count, Axes<RegularAxis<I>> axes) {
  for_items<I>(count, [&](I i) {
    const Place<I> at(i, axes.rows.outputs, axes.columns.outputs);
    const Range<I> rows = axes.rows.window(at.row);
    const Range<I> columns = axes.columns.window(at.column);
    const I width = axes.columns.inputs;
    const T* plane = x + at.plane * axes.rows.inputs * width;
    I best = rows.begin * width + columns.begin;
    T value = plane[best];
    for (I y = rows.begin; y < rows.end; ++y) {
      for (I c = columns.begin; c < columns.end; ++c) {
        const T element = plane[y * width + c];
        if (beats(load_of(element), load_of(value))) {
          best = y * width + c;
          value = element;
        }
      }
    }
    values[i] = value;
    indices[i] = static_cast<std::int32_t>(best);
  });
}

/// Item i: two outputs beside each other.
template <class T, class I>
__global__ void __launch_bounds__(kPoolThreads)
    max_halving_kernel(const T* x, T* values, std::int32_t* indices, I count, I rows, I pairs) {
  for_items<I>(count, [&](I i) {
    const Place<I> at(i, rows, pairs);
    const I width = pairs * 4;
    const I first = (2 * at.row) * width + 4 * at.column;  // in the plane
    const T* from = x + at.plane * rows * 2 * width + first;
    const Pack<T, 4> upper = *reinterpret_cast<const Pack<T, 4>*>(from);
    const Pack<T, 4> lower = *reinterpret_cast<const Pack<T, 4>*>(from + width);
    Pack<T, 2> found;
    Pack<std::int32_t, 2> where;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      T value = upper.values[2 * k];
      I best = first + 2 * k;
      const auto challenge = [&](T element, I index) {
        if (beats(load_of(element), load_of(value))) {
          value = element;
          best = index;
        }
      };
      challenge(upper.values[2 * k + 1], first + 2 * k + 1);
      challenge(lower.values[2 * k], first + width + 2 * k);
      challenge(lower.values[2 * k + 1], first + width + 2 * k + 1);
      found.values[k] = value;
      where.values[k] = static_cast<std::int32_t>(best);
    }
    *reinterpret_cast<Pack<T, 2>*>(values + 2 * i) = found;
    *reinterpret_cast<Pack<std::int32_t, 2>*>(indices + 2 * i) = where;
  });
}

template <class T, class I>
__global__ void __launch_bounds__(kPoolThreads)
    max_grad_kernel(const T* grad, const std::int32_t* indices, T* out, I count, Axes<RegularAxis<I>> axes) {
  for_items<I>(count, [&](I i) {
    const Place<I> at(i, axes.rows.inputs, axes.columns.inputs);
    const Range<I> rows = axes.rows.holders(at.row);
    const Range<I> columns = axes.columns.holders(at.column);
    const I width = axes.columns.outputs;
    const I base = at.plane * axes.rows.outputs * width;
    const auto self = static_cast<std::int32_t>(at.row * axes.columns.inputs + at.column);
    Compute<T> sum = 0;
    for (I p = rows.begin; p < rows.end; ++p) {
      for (I q = columns.begin; q < columns.end; ++q) {
        const I from = base + p * width + q;
        if (indices[from] == self) sum += load_of(grad[from]);
      }
    }
    out[i] = store_of<T>(sum);
  });
}

template <class T, class I>
__global__ void __launch_bounds__(kPoolThreads)
    max_halving_grad_kernel(const T* grad, const std::int32_t* indices, T* out, I count, I rows, I pairs) {
  for_items<I>(count, [&](I i) {
    const Place<I> at(i, rows, pairs);
    const I width = pairs * 4;
    const I first = (2 * at.row) * width + 4 * at.column;
    const Pack<T, 2> g = *reinterpret_cast<const Pack<T, 2>*>(grad + 2 * i);
    const Pack<std::int32_t, 2> chosen = *reinterpret_cast<const Pack<std::int32_t, 2>*>(indices + 2 * i);
    Pack<T, 4> lines[2];
#pragma unroll
    for (int line = 0; line < 2; ++line) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const auto self = static_cast<std::int32_t>(first + line * width + k);
        lines[line].values[k] = chosen.values[k / 2] == self ? g.values[k / 2] : store_of<T>(Compute<T>{0});
      }
    }
    T* to = out + at.plane * rows * 2 * width + first;
    *reinterpret_cast<Pack<T, 4>*>(to) = lines[0];
    *reinterpret_cast<Pack<T, 4>*>(to + width) = lines[1];
  });
}

template <class T, class I>
cudaError_t launch(const T* x, T* values, std::int32_t* indices, const PoolShape& s, const PoolWindow& w,
                   cudaStream_t stream) {
  if (halves(s, w, x, values, indices, sizeof(T))) {
    const std::int64_t pairs = s.planes * s.p * (s.q / 2);
    max_halving_kernel<T, I><<<blocks_of(pairs, kPoolThreads), kPoolThreads, 0, stream>>>(
        x, values, indices, static_cast<I>(pairs), static_cast<I>(s.p), static_cast<I>(s.q / 2));
  } else {
    const std::int64_t count = s.planes * s.p * s.q;
    max_kernel<T, I><<<blocks_of(count, kPoolThreads), kPoolThreads, 0, stream>>>(
        x, values, indices, static_cast<I>(count), regular_axes<I>(s, w));
  }
  return cudaGetLastError();
}

template <class T, class I>
cudaError_t launch_grad(const T* grad, const std::int32_t* indices, T* out, const PoolShape& s, const PoolWindow& w,
                        cudaStream_t stream) {
  if (halves(s, w, out, grad, indices, sizeof(T))) {
    const std::int64_t pairs = s.planes * s.p * (s.q / 2);
    max_halving_grad_kernel<T, I><<<blocks_of(pairs, kPoolThreads), kPoolThreads, 0, stream>>>(
        grad, indices, out, static_cast<I>(pairs), static_cast<I>(s.p), static_cast<I>(s.q / 2));
  } else {
    const std::int64_t count = s.planes * s.h * s.w;
    max_grad_kernel<T, I><<<blocks_of(count, kPoolThreads), kPoolThreads, 0, stream>>>(
        grad, indices, out, static_cast<I>(count), regular_axes<I>(s, w));
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t max_pool(const void* x, void* values, std::int32_t* indices, const PoolShape& shape,
                     const PoolWindow& window, Type type, cudaStream_t stream) {
  if (shape.planes * shape.p * shape.q == 0) return cudaSuccess;
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const auto* from = static_cast<const T*>(x);
    auto* to = static_cast<T*>(values);
    return narrow(shape) && narrow(window) ? launch<T, std::int32_t>(from, to, indices, shape, window, stream)
                                           : launch<T, std::int64_t>(from, to, indices, shape, window, stream);
  });
}

cudaError_t max_pool_grad(const void* grad, const std::int32_t* indices, void* out, const PoolShape& shape,
                          const PoolWindow& window, Type type, cudaStream_t stream) {
  if (shape.planes * shape.h * shape.w == 0) return cudaSuccess;
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const auto* from = static_cast<const T*>(grad);
    auto* to = static_cast<T*>(out);
    return narrow(shape) && narrow(window) ? launch_grad<T, std::int32_t>(from, indices, to, shape, window, stream)
                                           : launch_grad<T, std::int64_t>(from, indices, to, shape, window, stream);
  });
}

}  // namespace ddp::kernels
