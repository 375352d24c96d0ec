#include <algorithm>
#include <array>
#include <vector>

#include "core/thread_pool.h"
#include "tensor/cpu/conv_shape.h"
#include "tensor/cpu/frame.h"
#include "tensor/cpu/gemm_kernel.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/transpose_tile.h"

namespace ddp::raw::cpu {
namespace {

// Sums over parts of the batch are kept apart and added in order at the end, so that the result does not
// depend on the number of threads. How many parts there are depends on the sizes alone.
constexpr std::int64_t kMaxParts = 8;
constexpr std::int64_t kMaxPartElements = 4 << 20;

}  // namespace

/// gradient(tap, k) = sum over images and positions of x(position shifted by tap) * grad(k, position): a product
/// whose A rows are shifted walks over the framed input and whose B panels are transposed gradients.
template <class T>
void conv_weight_grad(const ConvShape& shape, const T* grad, const T* x, T* weight_grad, const Dims& strides,
                      bool accumulate) {
  const ConvParams& params = shape.params;
  const std::int64_t group_c = shape.group_c();
  const std::int64_t group_k = shape.group_k();
  const std::int64_t taps = shape.taps();
  const std::int64_t area = shape.p * shape.q;
  constexpr std::int64_t width = kTileColumns<T>;
  const std::int64_t panels = (group_k + width - 1) / width;

  const Frame frame(shape.h, shape.w, params.padding.h, params.padding.w, 0, 0);
  std::vector<std::int64_t> offsets;
  offsets.reserve(static_cast<std::size_t>(taps));
  for (std::int64_t c = 0; c < group_c; ++c) {
    for (std::int64_t r = 0; r < shape.r; ++r) {
      for (std::int64_t s = 0; s < shape.s; ++s) {
        offsets.push_back(c * frame.plane + r * params.dilation.h * frame.row + s * params.dilation.w);
      }
    }
  }
  const Walk walk{shape.p, shape.q, params.stride.h * frame.row, params.stride.w};
  const RowTiles tiles(taps);
  const std::int64_t total = params.groups * panels * taps * width;
  const std::int64_t parts =
      std::clamp<std::int64_t>(kMaxPartElements / total, 1, std::min<std::int64_t>(shape.n, kMaxParts));
  const Scratch<T> sums(parts * total, shape.device);

  core::parallel_for(shape.device, parts * params.groups, 1, [&](std::int64_t begin, std::int64_t end) {
    const Scratch<T> framed(group_c * frame.plane, shape.device);
    const Scratch<T> panel(area * width, shape.device);
    frame.clear(framed.data(), group_c);
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t part = task / params.groups;
      const std::int64_t g = task % params.groups;
      const std::int64_t first = shape.n * part / parts;
      const std::int64_t last = shape.n * (part + 1) / parts;
      for (std::int64_t image = first; image < last; ++image) {
        frame.fill(x + (image * shape.c + g * group_c) * shape.h * shape.w, group_c, framed.data());
        for (std::int64_t j = 0; j < panels; ++j) {
          const std::int64_t k = j * width;
          transpose_into(grad + (image * shape.k + g * group_k + k) * area, area, std::min(width, group_k - k), area,
                         panel.data(), width, width);
          T* sum = sums.data() + part * total + (g * panels + j) * taps * width;
          for (std::int64_t t = 0; t < tiles.count(); ++t) {
            const int height = tiles.height(t);
            std::array<const T*, kTileRows> rows{};
            for (int i = 0; i < height; ++i) {
              rows[static_cast<std::size_t>(i)] = framed.data() + offsets[static_cast<std::size_t>(tiles.begin(t) + i)];
            }
            with_rows(height, [&](auto count) {
              multiply_rows<T, count()>(walk, rows.data(), panel.data(), sum + tiles.begin(t) * width, width,
                                        image != first);
            });
          }
        }
      }
    }
  });

  // Sum of the parts, and from [tap][k] to the gradient's own order.
  core::parallel_for(shape.device, shape.k, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      const std::int64_t g = k / group_k;
      const std::int64_t in_group = k % group_k;
      const T* from = sums.data() + (g * panels + in_group / width) * taps * width + in_group % width;
      T* to = weight_grad + k * strides[0];
      for (std::int64_t c = 0; c < group_c; ++c) {
        for (std::int64_t r = 0; r < shape.r; ++r) {
          for (std::int64_t s = 0; s < shape.s; ++s, from += width) {
            T sum = from[0];
            for (std::int64_t part = 1; part < parts; ++part) sum += from[part * total];
            T& element = to[c * strides[1] + r * strides[2] + s * strides[3]];
            element = accumulate ? element + sum : sum;
          }
        }
      }
    }
  });
}

template void conv_weight_grad<float>(const ConvShape&, const float*, const float*, float*, const Dims&, bool);
template void conv_weight_grad<double>(const ConvShape&, const double*, const double*, double*, const Dims&, bool);

}  // namespace ddp::raw::cpu
