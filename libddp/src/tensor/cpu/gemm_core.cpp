#include "tensor/cpu/gemm_core.h"

#include <algorithm>
#include <array>

#include "core/thread_pool.h"
#include "tensor/cpu/gemm_kernel.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/transpose_tile.h"

namespace ddp::raw::cpu {
namespace {

// Blocks: a panel of B is depth x kTileColumns, a block of A at most kBlockElements; both stay in the L2 cache.
constexpr std::int64_t kMaxDepth = 512;
constexpr std::int64_t kMaxDepthDirect = 1024;
constexpr std::int64_t kBlockElements = 96 * 1024;
// Up to this many panels of B, A is read where it lies: packing it would not pay.
constexpr std::int64_t kDirectPanels = 4;
// Panels of B that are packed together.
constexpr std::int64_t kPanelGroup = 4;
// Multiplications below which another thread costs more than it brings.
constexpr std::int64_t kGrainWork = 1 << 17;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

template <class T>
struct Problem {
  std::int64_t m, n, k;
  MatrixView<const T> a, b;
  MatrixView<T> c;
  GemmOptions<T> options;

  Problem swapped() const {
    Problem s{n, m, k, b.transposed(), a.transposed(), c.transposed(), options};
    std::swap(s.options.column_bias, s.options.row_bias);
    return s;
  }
  bool direct() const { return n <= kDirectPanels * kTileColumns<T>; }
  // Rough number of cycles, to choose between C and its transpose.
  double cost() const {
    const double padded = static_cast<double>(ceil_div(n, kTileColumns<T>) * kTileColumns<T>);
    const double depth = static_cast<double>(k);
    const double rows = static_cast<double>(m);
    double cycles = rows * padded * depth / kLanes<T>;
    cycles += static_cast<double>(n) * depth * (b.column_stride == 1 ? 0.25 : b.row_stride == 1 ? 0.5 : 2.0);
    if (!direct()) cycles += rows * depth * (a.row_stride == 1 ? 0.3 : a.column_stride == 1 ? 0.6 : 2.0);
    return cycles + rows * static_cast<double>(n) * (c.column_stride == 1 ? 0.2 : 2.0);
  }
};

// B(k0 .. k0+depth, column .. ) as `panels` panels [depth][kTileColumns] one behind the other, columns past n
// zero. Row by row over all of them: a row of B is often a page of its own.
template <class T>
void pack_panels(const Problem<T>& p, std::int64_t k0, std::int64_t depth, std::int64_t column, std::int64_t panels,
                 T* to) {
  constexpr std::int64_t width = kTileColumns<T>;
  if (p.b.row_stride == 1 && p.b.column_stride != 1) {
    for (std::int64_t j = 0; j < panels; ++j, column += width, to += depth * width) {
      transpose_into(p.b.at(k0, column), p.b.column_stride, std::min(width, p.n - column), depth, to, width, width);
    }
    return;
  }
  for (std::int64_t kk = 0; kk < depth; ++kk) {
    for (std::int64_t j = 0; j < panels; ++j) {
      const std::int64_t first = column + j * width;
      const std::int64_t count = std::min(width, p.n - first);
      const T* from = p.b.at(k0 + kk, first);
      T* row = to + (j * depth + kk) * width;
      if (count == width && p.b.column_stride == 1) {
        for (int v = 0; v < kTileVectors; ++v) store_vector(row + v * kLanes<T>, load_vector(from + v * kLanes<T>));
      } else {
        for (std::int64_t i = 0; i < count; ++i) row[i] = from[i * p.b.column_stride];
        std::fill(row + count, row + width, T{});
      }
    }
  }
}

// Rows row .. row+height of A as [depth][height].
template <class T>
void pack_rows(const Problem<T>& p, std::int64_t k0, std::int64_t depth, std::int64_t row, int height, T* to) {
  const T* from = p.a.at(row, k0);
  if (p.a.column_stride == 1) {
    constexpr std::int64_t lanes = kLanes<T>;
    alignas(64) T block[lanes * lanes];
    std::int64_t kk = 0;
    // Through a square block: whole vectors are read along k, though `height` is no multiple of anything.
    for (; height <= lanes && kk + lanes <= depth; kk += lanes) {
      Vector<T> rows[lanes] = {};
      for (int i = 0; i < height; ++i) rows[i] = load_vector(from + i * p.a.row_stride + kk);
      detail::transpose_steps<T, static_cast<int>(lanes) / 2>(rows);
      for (int j = 0; j < lanes; ++j) store_vector(block + j * lanes, rows[j]);
      for (int j = 0; j < lanes; ++j) std::copy(block + j * lanes, block + j * lanes + height, to + (kk + j) * height);
    }
    for (; kk < depth; ++kk) {
      for (int i = 0; i < height; ++i) to[kk * height + i] = from[i * p.a.row_stride + kk];
    }
    return;
  }
  for (std::int64_t kk = 0; kk < depth; ++kk, from += p.a.column_stride, to += height) {
    for (int i = 0; i < height; ++i) to[i] = from[i * p.a.row_stride];
  }
}

// A tile that the kernel could not write in place, or that still needs bias or relu.
template <class T>
void finish_tile(const Problem<T>& p, const T* tile, std::int64_t row, int height, std::int64_t column, bool first,
                 bool last) {
  const std::int64_t width = std::min<std::int64_t>(kTileColumns<T>, p.n - column);
  const bool add = !first || p.options.accumulate;
  const bool relu = last && p.options.relu;
  const T* column_bias = last ? p.options.column_bias : nullptr;
  const T* row_bias = last ? p.options.row_bias : nullptr;
  const auto element = [&](int i, std::int64_t j) {
    T* to = p.c.at(row + i, column + j);
    T value = tile[i * kTileColumns<T> + j];
    if (add) value += *to;
    if (column_bias) value += column_bias[column + j];
    if (row_bias) value += row_bias[row + i];
    if (relu && value < T{}) value = T{};
    *to = value;
  };
  if (p.c.column_stride == 1) {
    for (int i = 0; i < height; ++i) {
      for (std::int64_t j = 0; j < width; ++j) element(i, j);
    }
  } else {
    for (std::int64_t j = 0; j < width; ++j) {
      for (int i = 0; i < height; ++i) element(i, j);
    }
  }
}

// Runs `kernel(c, row_stride, accumulate)` for one tile: straight into C where that is possible.
template <class T, class Kernel>
void tile_into(const Problem<T>& p, std::int64_t row, int height, std::int64_t column, bool first, bool last,
               Kernel&& kernel) {
  const bool plain = !last || (!p.options.relu && !p.options.column_bias && !p.options.row_bias);
  if (plain && p.c.column_stride == 1 && column + kTileColumns<T> <= p.n) {
    kernel(p.c.at(row, column), p.c.row_stride, !first || p.options.accumulate);
    return;
  }
  alignas(64) T tile[kTileRows * kTileColumns<T>];
  kernel(tile, std::int64_t{kTileColumns<T>}, false);
  finish_tile(p, tile, row, height, column, first, last);
}

template <class T>
void run_direct(const Problem<T>& p, Device device) {
  const std::int64_t blocks = ceil_div(p.k, kMaxDepthDirect);
  const std::int64_t panels = ceil_div(p.n, kTileColumns<T>);
  const RowTiles tiles(p.m);
  const Scratch<T> panel(ceil_div(p.k, blocks) * kTileColumns<T> * panels, device);
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t k0 = p.k * block / blocks;
    const std::int64_t depth = p.k * (block + 1) / blocks - k0;
    const std::int64_t panel_size = depth * kTileColumns<T>;
    pack_panels(p, k0, depth, 0, panels, panel.data());
    const Walk walk{1, depth, 0, p.a.column_stride};
    for (std::int64_t t = 0; t < tiles.count(); ++t) {
      const std::int64_t row = tiles.begin(t);
      const int height = tiles.height(t);
      std::array<const T*, kTileRows> rows{};
      for (int i = 0; i < height; ++i) rows[static_cast<std::size_t>(i)] = p.a.at(row + i, k0);
      for (std::int64_t j = 0; j < panels; ++j) {
        const auto kernel = [&](T* c, std::int64_t stride, bool add) {
          with_rows(height, [&](auto count) {
            multiply_rows<T, count()>(walk, rows.data(), panel.data() + j * panel_size, c, stride, add);
          });
        };
        tile_into(p, row, height, j * kTileColumns<T>, block == 0, block + 1 == blocks, kernel);
      }
    }
  }
}

template <class T>
void run_packed(const Problem<T>& p, Device device) {
  const std::int64_t blocks = ceil_div(p.k, kMaxDepth);
  const std::int64_t panels = ceil_div(p.n, kTileColumns<T>);
  const RowTiles tiles(p.m);
  const std::int64_t depth_max = ceil_div(p.k, blocks);
  const std::int64_t group = std::max<std::int64_t>(1, kBlockElements / (depth_max * kTileRows));
  const Scratch<T> packed(std::min(group, tiles.count()) * kTileRows * depth_max, device);
  const Scratch<T> panel(depth_max * kTileColumns<T> * std::min(kPanelGroup, panels), device);
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t k0 = p.k * block / blocks;
    const std::int64_t depth = p.k * (block + 1) / blocks - k0;
    for (std::int64_t t0 = 0; t0 < tiles.count(); t0 += group) {
      const std::int64_t t1 = std::min(t0 + group, tiles.count());
      const std::int64_t row0 = tiles.begin(t0);
      for (std::int64_t t = t0; t < t1; ++t) {
        pack_rows(p, k0, depth, tiles.begin(t), tiles.height(t), packed.data() + (tiles.begin(t) - row0) * depth);
      }
      for (std::int64_t j0 = 0; j0 < panels; j0 += kPanelGroup) {
        const std::int64_t j1 = std::min(j0 + kPanelGroup, panels);
        pack_panels(p, k0, depth, j0 * kTileColumns<T>, j1 - j0, panel.data());
        for (std::int64_t j = j0; j < j1; ++j) {
          const T* b = panel.data() + (j - j0) * depth * kTileColumns<T>;
          const auto b_row = [b](std::int64_t kk) { return b + kk * kTileColumns<T>; };
          for (std::int64_t t = t0; t < t1; ++t) {
            const T* a = packed.data() + (tiles.begin(t) - row0) * depth;
            const int height = tiles.height(t);
            const auto kernel = [&](T* c, std::int64_t stride, bool add) {
              with_rows(height, [&](auto count) { multiply_packed<T, count()>(depth, a, b_row, c, stride, add); });
            };
            tile_into(p, tiles.begin(t), height, j * kTileColumns<T>, block == 0, block + 1 == blocks, kernel);
          }
        }
      }
    }
  }
}

template <class T>
void run(const Problem<T>& p, Device device) {
  // Pieces along the longer side of C. The sum over k of an element is the same however C is cut, but for
  // the depth of its blocks, so that is decided on the whole problem.
  const bool direct = p.direct();
  const bool by_rows = ceil_div(p.m, kTileRows) >= ceil_div(p.n, kTileColumns<T>);
  const std::int64_t unit = by_rows ? kTileRows : kTileColumns<T>;
  const std::int64_t units = ceil_div(by_rows ? p.m : p.n, unit);
  const std::int64_t work = std::max<std::int64_t>(1, unit * (by_rows ? p.n : p.m) * p.k);
  core::parallel_for(device, units, ceil_div(kGrainWork, work), [&](std::int64_t begin, std::int64_t end) {
    Problem<T> piece = p;
    const std::int64_t first = begin * unit;
    if (by_rows) {
      piece.m = std::min(p.m, end * unit) - first;
      piece.a.data = p.a.at(first, 0);
      piece.c.data = p.c.at(first, 0);
      if (p.options.row_bias) piece.options.row_bias += first;
    } else {
      piece.n = std::min(p.n, end * unit) - first;
      piece.b.data = p.b.at(0, first);
      piece.c.data = p.c.at(0, first);
      if (p.options.column_bias) piece.options.column_bias += first;
    }
    if (direct) {
      run_direct(piece, device);
    } else {
      run_packed(piece, device);
    }
  });
}

// k == 0: the product is zero.
template <class T>
void run_empty(const Problem<T>& p) {
  const std::array<T, kTileRows * kTileColumns<T>> zeros{};
  for (std::int64_t row = 0; row < p.m; row += kTileRows) {
    for (std::int64_t column = 0; column < p.n; column += kTileColumns<T>) {
      finish_tile(p, zeros.data(), row, static_cast<int>(std::min<std::int64_t>(kTileRows, p.m - row)), column, true,
                  true);
    }
  }
}

}  // namespace

template <class T>
void gemm(Device device, std::int64_t m, std::int64_t n, std::int64_t k, MatrixView<const T> a, MatrixView<const T> b,
          MatrixView<T> c, const GemmOptions<T>& options) {
  if (m == 0 || n == 0) return;
  const Problem<T> straight{m, n, k, a, b, c, options};
  if (k == 0) {
    run_empty(straight);
    return;
  }
  const Problem<T> swapped = straight.swapped();
  run(swapped.cost() < straight.cost() ? swapped : straight, device);
}

template void gemm<float>(Device, std::int64_t, std::int64_t, std::int64_t, MatrixView<const float>,
                          MatrixView<const float>, MatrixView<float>, const GemmOptions<float>&);
template void gemm<double>(Device, std::int64_t, std::int64_t, std::int64_t, MatrixView<const double>,
                           MatrixView<const double>, MatrixView<double>, const GemmOptions<double>&);

}  // namespace ddp::raw::cpu
