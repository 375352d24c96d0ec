#pragma once

#include <algorithm>

#include "norm.cuh"

/// Reductions over [images, channels, area] to a state per channel. An `Op` says what is summed:
///   State, T, kInputs, in[kInputs]; Center center(set) of a channel or, in columns with kByRow, of a row;
///   add(state, values[kInputs][Width], centers), where centers[0] is for all or, with kByRow, each has its own;
///   finish(state, channel) writes the result, with merges too.
namespace ddp::kernels {

inline constexpr unsigned kColumnLanes = 32;
inline constexpr unsigned kColumnRows = kNormThreads / kColumnLanes;

/// Leaves the state of a channel where it belongs.
template <class Op>
__device__ void leave(const Op& op, const typename Op::State& state, std::int64_t channel, std::int64_t channels,
                      typename Op::State* partials) {
  if (gridDim.y == 1) {
    op.finish(state, channel);
  } else {
    partials[blockIdx.y * channels + channel] = state;
  }
}

/// Block (c, p): piece p of channel c. Sizes and `piece` in packs of Width elements.
template <class Op, int Width>
__global__ void __launch_bounds__(kNormThreads)
    plane_sums_kernel(Op op, std::int64_t images, std::int64_t channels, std::int64_t area, std::int64_t piece,
                      typename Op::State* partials) {
  using C = Compute<typename Op::T>;
  const std::int64_t channel = blockIdx.x;
  const std::int64_t begin = blockIdx.y * piece;
  const std::int64_t end = min(begin + piece, images * area);
  const typename Op::Center centers[1] = {op.center(channel)};
  typename Op::State state{};  // of nothing: all 0
  std::int64_t i = begin + threadIdx.x;
  std::int64_t image = i / area;
  std::int64_t offset = i - image * area;
  const std::int64_t image_step = kNormThreads / area;
  const std::int64_t offset_step = kNormThreads - image_step * area;
#pragma unroll 4
  for (; i < end; i += kNormThreads) {
    const std::int64_t at = ((image * channels + channel) * area + offset) * Width;
    C values[Op::kInputs][Width];
#pragma unroll
    for (int n = 0; n < Op::kInputs; ++n) load_pack<Width>(op.in[n] + at, values[n]);
    op.template add<false>(state, values, centers);
    offset += offset_step;
    image += image_step;
    if (offset >= area) {
      offset -= area;
      ++image;
    }
  }
  __shared__ typename Op::State room[kNormWarps];
  state = merged_everywhere(state, room);
  if (threadIdx.x == 0) leave(op, state, channel, channels, partials);
}

/// The states of a block's rows merged per column, in the threads of row 0.
template <class State>
__device__ State merged_columns(State state, State (&room)[kColumnRows][kColumnLanes]) {
  room[threadIdx.y][threadIdx.x] = state;
  __syncthreads();
  if (threadIdx.y == 0) {
#pragma unroll
    for (unsigned row = 1; row < kColumnRows; ++row) state.merge(room[row][threadIdx.x]);
  }
  return state;
}

/// An area of 1. Block (b, p): rows of piece p of 32 columns.
template <class Op, bool kByRow>
__global__ void __launch_bounds__(kNormThreads) column_sums_kernel(Op op, std::int64_t rows, std::int64_t columns,
                                                                   std::int64_t piece, typename Op::State* partials) {
  using C = Compute<typename Op::T>;
  constexpr int kUnroll = 4;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumnLanes + threadIdx.x;
  const std::int64_t begin = blockIdx.y * piece + threadIdx.y;
  const std::int64_t end = min((blockIdx.y + 1) * piece, rows);
  typename Op::State state{};  // of nothing: all 0
  if (column < columns) {
    typename Op::Center centers[kUnroll];
    if (!kByRow) centers[0] = op.center(column);
    std::int64_t row = begin;
    for (; row + (kUnroll - 1) * kColumnRows < end; row += kUnroll * kColumnRows) {
      C values[Op::kInputs][kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (kByRow) centers[u] = op.center(row + u * kColumnRows);
#pragma unroll
        for (int n = 0; n < Op::kInputs; ++n) {
          values[n][u] = load_of(op.in[n][(row + u * kColumnRows) * columns + column]);
        }
      }
      op.template add<kByRow>(state, values, centers);
    }
    for (; row < end; row += kColumnRows) {
      C values[Op::kInputs][1];
      if (kByRow) centers[0] = op.center(row);
#pragma unroll
      for (int n = 0; n < Op::kInputs; ++n) values[n][0] = load_of(op.in[n][row * columns + column]);
      op.template add<kByRow>(state, values, centers);
    }
  }
  __shared__ typename Op::State room[kColumnRows][kColumnLanes];
  state = merged_columns(state, room);
  if (threadIdx.y == 0 && column < columns) leave(op, state, column, columns, partials);
}

/// The pieces' states merged.
template <class Op>
__global__ void __launch_bounds__(kNormThreads)
    merge_kernel(Op op, const typename Op::State* partials, std::int64_t channels, std::int64_t pieces) {
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * kColumnLanes + threadIdx.x;
  typename Op::State state{};  // of nothing: all 0
  if (channel < channels) {
#pragma unroll 4
    for (std::int64_t p = threadIdx.y; p < pieces; p += kColumnRows) state.merge(partials[p * channels + channel]);
  }
  __shared__ typename Op::State room[kColumnRows][kColumnLanes];
  state = merged_columns(state, room);
  if (threadIdx.y == 0 && channel < channels) op.finish(state, channel);
}

inline unsigned column_blocks(std::int64_t columns) {
  return static_cast<unsigned>((columns + kColumnLanes - 1) / kColumnLanes);
}

template <class Op>
cudaError_t launch_plane_sums(const Op& op, const ChannelShape& s, std::int64_t pieces, void* partials,
                              cudaStream_t stream) {
  using State = typename Op::State;
  constexpr int kWidth = kNormWidth<typename Op::T>;
  bool packs = s.area % kWidth == 0;
  for (int n = 0; n < Op::kInputs; ++n) packs = packs && on_16_bytes({op.in[n]});
  const std::int64_t area = packs ? s.area / kWidth : s.area;
  const std::int64_t piece = (s.images * area + pieces - 1) / pieces;
  const dim3 grid(static_cast<unsigned>(s.channels), static_cast<unsigned>(pieces));
  auto* to = static_cast<State*>(partials);
  if (packs) {
    plane_sums_kernel<Op, kWidth><<<grid, kNormThreads, 0, stream>>>(op, s.images, s.channels, area, piece, to);
  } else {
    plane_sums_kernel<Op, 1><<<grid, kNormThreads, 0, stream>>>(op, s.images, s.channels, area, piece, to);
  }
  return cudaGetLastError();
}

template <bool kByRow, class Op>
cudaError_t launch_column_sums(const Op& op, std::int64_t rows, std::int64_t columns, std::int64_t pieces,
                               void* partials, cudaStream_t stream) {
  const std::int64_t piece = (rows + pieces - 1) / pieces;
  const dim3 grid(column_blocks(columns), static_cast<unsigned>(pieces));
  column_sums_kernel<Op, kByRow><<<grid, dim3(kColumnLanes, kColumnRows), 0, stream>>>(
      op, rows, columns, piece, static_cast<typename Op::State*>(partials));
  return cudaGetLastError();
}

template <class Op>
cudaError_t launch_channel_sums(const Op& op, const ChannelShape& shape, std::int64_t pieces, void* partials,
                                cudaStream_t stream) {
  return shape.area == 1 ? launch_column_sums<false>(op, shape.images, shape.channels, pieces, partials, stream)
                         : launch_plane_sums(op, shape, pieces, partials, stream);
}

template <class Op>
cudaError_t launch_merge(const Op& op, const void* partials, std::int64_t channels, std::int64_t pieces,
                         cudaStream_t stream) {
  merge_kernel<Op><<<column_blocks(channels), dim3(kColumnLanes, kColumnRows), 0, stream>>>(
      op, static_cast<const typename Op::State*>(partials), channels, pieces);
  return cudaGetLastError();
}

/// Sums of a gradient and of its product with the normalised x.
template <class Element>
struct GradSumsOp {
  using T = Element;
  using C = Compute<T>;
  using State = GradSums<C>;
  static constexpr int kInputs = 2;
  struct Center {
    C mean;
    C inverse;
  };

  const T* in[2];  // gradient, x
  const C* mean;
  const C* invstd;
  C* weight_grad;
  C* bias_grad;

  __device__ Center center(std::int64_t set) const { return {mean[set], invstd[set]}; }
  template <bool kEach, int Width, int Centers>
  __device__ void add(State& state, const C (&values)[2][Width], const Center (&centers)[Centers]) const {
#pragma unroll
    for (int w = 0; w < Width; ++w) {
      const Center& c = centers[kEach ? w : 0];
      state.add(values[0][w], (values[1][w] - c.mean) * c.inverse);
    }
  }
  __device__ void finish(const State& state, std::int64_t channel) const {
    weight_grad[channel] = state.product;
    bias_grad[channel] = state.sum;
  }
};

}  // namespace ddp::kernels
