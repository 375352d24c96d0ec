#pragma once

#include <algorithm>
#include <limits>

#include "ddp_kernels/pool.h"
#include "rows.cuh"

/// What the pooling kernels share. I is the type of indices: 32 bits where everything fits.
namespace ddp::kernels {

inline constexpr unsigned kPoolThreads = 256;

template <class I>
struct Range {
  I begin;
  I end;
};

/// One axis of a pooling: windows of one size at one distance.
template <class I>
struct RegularAxis {
  I inputs, outputs, kernel, stride, padding;

  /// The inputs of an output.
  __device__ Range<I> window(I output) const {
    const I first = output * stride - padding;
    return {first > 0 ? first : 0, first + kernel < inputs ? first + kernel : inputs};
  }
  /// The outputs whose windows hold an input.
  __device__ Range<I> holders(I input) const {
    const I at = input + padding;
    const I last = at / stride + 1;
    return {at < kernel ? 0 : (at - kernel) / stride + 1, last < outputs ? last : outputs};
  }
};

/// One axis of an adaptive pooling.
template <class I>
struct AdaptiveAxis {
  I inputs, outputs;

  __device__ Range<I> window(I output) const {
    return {output * inputs / outputs, ((output + 1) * inputs + outputs - 1) / outputs};
  }
  __device__ Range<I> holders(I input) const {
    return {input * outputs / inputs, ((input + 1) * outputs + inputs - 1) / inputs};
  }
};

template <class Axis>
struct Axes {
  Axis rows;
  Axis columns;
};

/// Plane, row and column of element i of [.., rows, columns].
template <class I>
struct Place {
  __device__ Place(I i, I rows, I columns) {
    const I line = i / columns;
    column = i - line * columns;
    plane = line / rows;
    row = line - plane * rows;
  }
  I plane, row, column;
};

inline bool fits_32_bits(std::int64_t value) { return value < (std::int64_t{1} << 30); }

inline bool narrow(const PoolShape& s) {
  return fits_32_bits(s.planes * s.h * s.w) && fits_32_bits(s.planes * s.p * s.q) &&
         fits_32_bits(s.h * s.p + s.h + s.p) && fits_32_bits(s.w * s.q + s.w + s.q);
}
inline bool narrow(const PoolWindow& w) {
  const std::int64_t most = std::max({w.kernel_h, w.kernel_w, w.stride_h, w.stride_w, w.padding_h, w.padding_w});
  return fits_32_bits(most);
}

template <class I>
Axes<RegularAxis<I>> regular_axes(const PoolShape& s, const PoolWindow& w) {
  const auto cut = [](std::int64_t value) { return static_cast<I>(value); };
  return {{cut(s.h), cut(s.p), cut(w.kernel_h), cut(w.stride_h), cut(w.padding_h)},
          {cut(s.w), cut(s.q), cut(w.kernel_w), cut(w.stride_w), cut(w.padding_w)}};
}
template <class I>
Axes<AdaptiveAxis<I>> adaptive_axes(const PoolShape& s) {
  const auto cut = [](std::int64_t value) { return static_cast<I>(value); };
  return {{cut(s.h), cut(s.p)}, {cut(s.w), cut(s.q)}};
}

/// 2x2 windows at distance 2 that cover the planes, which a thread can take two at a time: rows of the input are
/// aligned to four elements.
inline bool halves(const PoolShape& s, const PoolWindow& w, const void* input, const void* output, const void* indices,
                   std::size_t element) {
  const auto aligned = [](const void* address, std::size_t bytes) {
    return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
  };
  return w.kernel_h == 2 && w.kernel_w == 2 && w.stride_h == 2 && w.stride_w == 2 && w.padding_h == 0 &&
         w.padding_w == 0 && s.h % 2 == 0 && s.w % 4 == 0 && s.p * 2 == s.h && s.q * 2 == s.w &&
         aligned(input, 4 * element) && aligned(output, 2 * element) && aligned(indices, 2 * sizeof(std::int32_t));
}

/// What an average is divided by; 0 stands for the size of the window.
inline std::int64_t divisor_of(const PoolWindow& w, bool count_padding) {
  return count_padding ? w.kernel_h * w.kernel_w : 0;
}

/// for (i of this thread) in a grid-stride loop.
template <class I, class Body>
__device__ void for_items(I count, const Body& body) {
  const I step = static_cast<I>(gridDim.x * kPoolThreads);
  for (I i = static_cast<I>(blockIdx.x * kPoolThreads + threadIdx.x); i < count; i += step) body(i);
}

}  // namespace ddp::kernels
