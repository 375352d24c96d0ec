#include "tensor/cpu/reduce_sum.h"

#include <algorithm>
#include <vector>

#include "tensor/checks.h"
#include "tensor/cpu/accumulate.h"
#include "tensor/cpu/strided_loop.h"

namespace ddp::raw::cpu {

namespace {

constexpr std::int64_t kTile = 256;             // columns summed side by side
constexpr std::int64_t kBlockElements = 65536;  // of one partial sum, at least
constexpr std::int64_t kMaxBlocks = 64;

// The dimensions of one sum, merged: those that stay, of which the innermost may be a vector of columns, and
// those that go. Work is cut into (row of kept elements, tile of columns, block of reduced elements) by the
// sizes alone, and partial sums of blocks are added in order: the result is the same for any thread count.
struct Shape {
  LoopPlan<2> kept;     // operands x and out; without the columns
  LoopPlan<1> reduced;  // operand x
  std::int64_t columns = 1;
  std::int64_t column_step = 0;      // of x, in bytes
  std::int64_t column_out_step = 0;  // of out, in bytes

  std::int64_t tiles = 1;
  std::int64_t block = 1;  // reduced elements
  std::int64_t blocks = 1;
};

template <std::size_t N>
void push(LoopPlan<N>& plan, std::int64_t size, const std::array<std::int64_t, N>& strides) {
  plan.sizes[plan.rank] = size;
  plan.strides[plan.rank] = strides;
  ++plan.rank;
  plan.numel *= size;
}

Shape analyse(const Tensor& x, const Tensor& out) {
  const Tensor wide = broadcast_to("sum", out, x.sizes());
  const auto plan = make_plan<2>({&x, &wide});
  Shape shape;
  shape.kept.base = plan.base;
  shape.reduced.base[0] = plan.base[0];
  for (std::size_t d = 0; d < plan.rank; ++d) {
    const auto [x_stride, out_stride] = plan.strides[d];
    if (out_stride == 0) {
      push<1>(shape.reduced, plan.sizes[d], {x_stride});
    } else if (d + 1 == plan.rank) {
      shape.columns = plan.sizes[d];
      shape.column_step = x_stride;
      shape.column_out_step = out_stride;
    } else {
      push<2>(shape.kept, plan.sizes[d], plan.strides[d]);
    }
  }
  if (shape.kept.rank == 0) push<2>(shape.kept, 1, {});
  if (shape.reduced.rank == 0) push<1>(shape.reduced, 1, {});
  shape.tiles = (shape.columns + kTile - 1) / kTile;
  const std::int64_t total = shape.reduced.numel;
  const std::int64_t least =
      std::max(kBlockElements / std::min(shape.columns, kTile), (total + kMaxBlocks - 1) / kMaxBlocks);
  shape.block = (least + 7) / 8 * 8;
  shape.blocks = (total + shape.block - 1) / shape.block;
  return shape;
}

template <class T>
void typed_sum(const Tensor& x, const Tensor& out, bool accumulate) {
  using A = SumType<T>;
  using Out = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;
  constexpr std::int64_t kWidth = sizeof(T);
  const Shape shape = analyse(x, out);
  const Device device = x.device();

  // sums[c] = sum of block `block` for columns [first, first + width) of one kept row.
  const auto reduce_block = [&](const char* row, std::int64_t first, std::int64_t width, std::int64_t block, A* sums) {
    std::fill_n(sums, width, A{});
    LoopPlan<1> reduced = shape.reduced;
    reduced.base[0] = const_cast<char*>(row) + first * shape.column_step;
    const std::int64_t begin = block * shape.block;
    const std::int64_t end = std::min(reduced.numel, begin + shape.block);
    for_rows(reduced, begin, end, [&](const auto& p, const auto& strides, std::int64_t count) {
      const auto* from = reinterpret_cast<const T*>(p[0]);
      if (shape.columns == 1) {
        sums[0] += sum_run<T>(from, strides[0] / kWidth, count);
      } else {
        accumulate_rows<T>(sums, from, strides[0] / kWidth, count, shape.column_step / kWidth, width);
      }
    });
  };
  const auto write = [&](char* row, std::int64_t first, std::int64_t width, const A* sums) {
    for (std::int64_t c = 0; c < width; ++c) {
      auto* to = reinterpret_cast<Out*>(row + (first + c) * shape.column_out_step);
      *to = store<Out>(accumulate ? static_cast<A>(load(*to)) + sums[c] : sums[c]);
    }
  };
  // Runs work(x row, out row, kept row, tile, block) for tasks numbered block-fastest.
  const auto for_tasks = [&](std::int64_t blocks, std::int64_t cost, const auto& work) {
    const std::int64_t per_row = shape.tiles * blocks;
    core::parallel_for(device, shape.kept.numel * per_row, std::max<std::int64_t>(1, kGrain / cost),
                       [&](std::int64_t begin, std::int64_t end) {
                         std::int64_t kept = begin / per_row;
                         const std::int64_t kept_end = (end + per_row - 1) / per_row;
                         for_rows(shape.kept, kept, kept_end, [&](auto p, const auto& strides, std::int64_t count) {
                           for (; count > 0; --count, ++kept, p[0] += strides[0], p[1] += strides[1]) {
                             const std::int64_t from = std::max(begin, kept * per_row) - kept * per_row;
                             const std::int64_t to = std::min(end, (kept + 1) * per_row) - kept * per_row;
                             for (std::int64_t t = from; t < to; ++t) work(p[0], p[1], kept, t / blocks, t % blocks);
                           }
                         });
                       });
  };
  const auto width_of = [&](std::int64_t tile) { return std::min(kTile, shape.columns - tile * kTile); };
  const std::int64_t tile_width = std::min(kTile, shape.columns);

  if (shape.blocks == 1) {
    for_tasks(1, tile_width * shape.reduced.numel,
              [&](char* from, char* to, std::int64_t, std::int64_t tile, std::int64_t) {
                A sums[kTile];
                reduce_block(from, tile * kTile, width_of(tile), 0, sums);
                write(to, tile * kTile, width_of(tile), sums);
              });
    return;
  }
  std::vector<A> partial(static_cast<std::size_t>(shape.kept.numel * shape.tiles * shape.blocks * tile_width));
  const auto partial_of = [&](std::int64_t kept, std::int64_t tile, std::int64_t block) {
    return partial.data() + ((kept * shape.tiles + tile) * shape.blocks + block) * tile_width;
  };
  for_tasks(shape.blocks, tile_width * shape.block,
            [&](char* from, char*, std::int64_t kept, std::int64_t tile, std::int64_t block) {
              reduce_block(from, tile * kTile, width_of(tile), block, partial_of(kept, tile, block));
            });
  for_tasks(1, tile_width * shape.blocks, [&](char*, char* to, std::int64_t kept, std::int64_t tile, std::int64_t) {
    A sums[kTile] = {};
    accumulate_rows<A>(sums, partial_of(kept, tile, 0), tile_width, shape.blocks, 1, width_of(tile));
    write(to, tile * kTile, width_of(tile), sums);
  });
}

}  // namespace

void sum(const Tensor& x, const Tensor& out, bool accumulate) {
  dispatch_all("sum", x.dtype(), [&]<class T>(TypeTag<T>) { typed_sum<T>(x, out, accumulate); });
}

}  // namespace ddp::raw::cpu
