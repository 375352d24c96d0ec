#include <algorithm>
#include <vector>

#include "core/thread_pool.h"
#include "tensor/cpu/conv_shape.h"
#include "tensor/cpu/frame.h"
#include "tensor/cpu/gemm_kernel.h"
#include "tensor/cpu/scratch.h"

namespace ddp::raw::cpu {
namespace {

// Kernels of one group as the A panels of the GEMM kernel: [tile][tap][row of the tile].
template <class T>
void pack_kernels(const ConvShape& shape, std::int64_t group, const T* weight, bool flipped, const RowTiles& tiles,
                  T* to) {
  const std::int64_t group_c = shape.group_c();
  const std::int64_t area = shape.r * shape.s;
  for (std::int64_t tile = 0; tile < tiles.count(); ++tile) {
    const int height = tiles.height(tile);
    for (int i = 0; i < height; ++i) {
      const std::int64_t row = tiles.begin(tile) + i;
      T* column = to + tiles.begin(tile) * shape.taps() + i;
      for (std::int64_t c = 0; c < group_c; ++c) {
        const T* kernel = flipped ? weight + ((group * group_c + c) * shape.group_k() + row) * area
                                  : weight + ((group * shape.group_k() + row) * group_c + c) * area;
        for (std::int64_t tap = 0; tap < area; ++tap, column += height) {
          *column = kernel[flipped ? area - 1 - tap : tap];
        }
      }
    }
  }
}

}  // namespace

template <class T>
void conv_shifted(const ConvShape& shape, const T* x, const T* weight, bool flipped, const T* bias, T* y) {
  const ConvParams& params = shape.params;
  const std::int64_t group_c = shape.group_c();
  const std::int64_t group_k = shape.group_k();
  const std::int64_t taps = shape.taps();
  constexpr std::int64_t step = kTileColumns<T>;

  // One row of B per tap, as wide as all output rows at the distance of the input's rows; what lies between
  // the rows of the output is computed and dropped.
  const std::int64_t row = std::max(shape.w + params.padding.w, shape.q);
  const std::int64_t wide = ((shape.p - 1) * row + shape.q + step - 1) / step * step;
  const std::int64_t farthest = (shape.r - 1) * params.dilation.h * row + (shape.s - 1) * params.dilation.w;
  const Frame frame(shape.h, shape.w, params.padding.h, params.padding.w, row, wide + farthest);
  std::vector<std::int64_t> offsets;
  offsets.reserve(static_cast<std::size_t>(taps));
  for (std::int64_t c = 0; c < group_c; ++c) {
    for (std::int64_t r = 0; r < shape.r; ++r) {
      for (std::int64_t s = 0; s < shape.s; ++s) {
        offsets.push_back(c * frame.plane + r * params.dilation.h * row + s * params.dilation.w);
      }
    }
  }
  const RowTiles tiles(group_k);
  const Scratch<T> kernels(shape.k * taps, shape.device);
  for (std::int64_t g = 0; g < params.groups; ++g) {
    pack_kernels(shape, g, weight, flipped, tiles, kernels.data() + g * group_k * taps);
  }

  core::parallel_for(shape.device, shape.n, 1, [&](std::int64_t begin, std::int64_t end) {
    const Scratch<T> framed(group_c * frame.plane, shape.device);
    const Scratch<T> strip(kTileRows * wide, shape.device);
    frame.clear(framed.data(), group_c);
    for (std::int64_t image = begin; image < end; ++image) {
      for (std::int64_t g = 0; g < params.groups; ++g) {
        frame.fill(x + (image * shape.c + g * group_c) * shape.h * shape.w, group_c, framed.data());
        for (std::int64_t t = 0; t < tiles.count(); ++t) {
          const int height = tiles.height(t);
          const T* a = kernels.data() + (g * group_k + tiles.begin(t)) * taps;
          with_rows(height, [&](auto count) {
            for (std::int64_t at = 0; at < wide; at += step) {
              const T* base = framed.data() + at;
              const std::int64_t* offset = offsets.data();
              multiply_packed<T, count()>(
                  taps, a, [&](std::int64_t tap) { return base + offset[tap]; }, strip.data() + at, wide, false);
            }
          });
          for (int i = 0; i < height; ++i) {
            const std::int64_t k = g * group_k + tiles.begin(t) + i;
            const T add = bias ? bias[k] : T{};
            const T* from = strip.data() + i * wide;
            T* to = y + (image * shape.k + k) * shape.p * shape.q;
            const std::int64_t rows = row == shape.q ? 1 : shape.p;
            const std::int64_t length = row == shape.q ? shape.p * shape.q : shape.q;
            for (std::int64_t line = 0; line < rows; ++line, from += row, to += length) {
              for (std::int64_t j = 0; j < length; ++j) to[j] = from[j] + add;
            }
          }
        }
      }
    }
  });
}

template void conv_shifted<float>(const ConvShape&, const float*, const float*, bool, const float*, float*);
template void conv_shifted<double>(const ConvShape&, const double*, const double*, bool, const double*, double*);

}  // namespace ddp::raw::cpu
