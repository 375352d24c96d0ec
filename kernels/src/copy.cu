// Copies between arrays of one type: bits move, so there is one kernel per width of an element.
#include "convert.cuh"
#include "ddp_kernels/copy.h"
#include "map.cuh"

namespace ddp::kernels {
namespace {

struct Identity {
  template <class C, int Width>
  __device__ void operator()(const C (&values)[1][Width], C (&results)[Width]) const {
#pragma unroll
    for (int w = 0; w < Width; ++w) results[w] = values[0][w];
  }
};

constexpr int kTile = 32;
constexpr int kTileRows = 8;  // of threads

/// Matrices whose columns are dense in the destination and whose rows are dense in the source.
struct Transposition {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t to_row = 0;       // destination stride from row to row
  std::int64_t from_column = 0;  // source stride from column to column
  std::int64_t tile_rows = 0;
  std::int64_t tile_columns = 0;
  std::int64_t tiles = 0;
  Walk<2> outer;  // the other dimensions

  /// False when the copy is none.
  bool set(const Walk<2>& walk) {
    if (walk.rank < 2) return false;
    const int column = walk.rank - 1;
    if (walk.strides[0][column] != 1 || walk.strides[1][column] <= 1) return false;
    int row = -1;
    for (int d = 0; d < column; ++d) {
      if (walk.strides[1][d] == 1) row = d;
    }
    constexpr std::int64_t kLeast = 8;  // below it most of a tile is empty
    if (row < 0 || walk.sizes[row] < kLeast || walk.sizes[column] < kLeast) return false;
    rows = walk.sizes[row];
    columns = walk.sizes[column];
    to_row = walk.strides[0][row];
    from_column = walk.strides[1][column];
    for (int d = 0; d < column; ++d) {
      if (d == row) continue;
      outer.sizes[outer.rank] = walk.sizes[d];
      for (int n = 0; n < 2; ++n) outer.strides[n][outer.rank] = walk.strides[n][d];
      ++outer.rank;
    }
    outer.count = walk.count / (rows * columns);
    outer.finish();
    tile_rows = (rows + kTile - 1) / kTile;
    tile_columns = (columns + kTile - 1) / kTile;
    tiles = tile_rows * tile_columns * outer.count;
    return true;
  }
};

template <class U>
__global__ void __launch_bounds__(kTile* kTileRows) transpose_kernel(U* to, const U* from, Transposition plan) {
  __shared__ U tile[kTile][kTile + 1];  // one more, against bank conflicts
  const int x = static_cast<int>(threadIdx.x);
  const int y = static_cast<int>(threadIdx.y);
  for (std::int64_t i = blockIdx.x; i < plan.tiles; i += gridDim.x) {
    const std::int64_t c0 = i % plan.tile_columns * kTile;
    const std::int64_t rest = i / plan.tile_columns;
    const std::int64_t r0 = rest % plan.tile_rows * kTile;
    std::int64_t at[2];
    plan.outer.offsets(rest / plan.tile_rows, at);
#pragma unroll
    for (int k = 0; k < kTile; k += kTileRows) {
      const std::int64_t r = r0 + x;
      const std::int64_t c = c0 + y + k;
      if (r < plan.rows && c < plan.columns) tile[y + k][x] = from[at[1] + r + c * plan.from_column];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kTile; k += kTileRows) {
      const std::int64_t r = r0 + y + k;
      const std::int64_t c = c0 + x;
      if (r < plan.rows && c < plan.columns) to[at[0] + r * plan.to_row + c] = tile[x][y + k];
    }
    __syncthreads();
  }
}

template <class U>
cudaError_t move(const Array& destination, const ConstArray& source, const Sizes& sizes, cudaStream_t stream) {
  Walk<2> walk;
  if (!walk.set(sizes, {&destination.strides, &source.strides}, true)) return cudaErrorInvalidValue;
  if (walk.count == 0) return cudaSuccess;
  Transposition plan;
  if (plan.set(walk)) {
    constexpr std::int64_t kMostBlocks = 8192;
    const auto blocks = static_cast<unsigned>(plan.tiles < kMostBlocks ? plan.tiles : kMostBlocks);
    transpose_kernel<U><<<blocks, dim3(kTile, kTileRows), 0, stream>>>(static_cast<U*>(destination.data),
                                                                       static_cast<const U*>(source.data), plan);
    return cudaGetLastError();
  }
  const ConstArray* const in[] = {&source};
  return launch_map<U, U, true>(destination, in, sizes, Identity{}, stream);
}

}  // namespace

cudaError_t copy(const Array& destination, Type to, const ConstArray& source, Type from, const Sizes& sizes,
                 cudaStream_t stream) {
  if (to != from) return convert(destination, to, source, from, sizes, stream);
  return with_type(to, [&](auto* tag) { return move<UnsignedOf<sizeof(*tag)>>(destination, source, sizes, stream); });
}

}  // namespace ddp::kernels
