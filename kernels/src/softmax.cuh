#pragma once

#include "rows.cuh"

/// One template for softmax and its gradient: a pass over the row that makes a state, and one that writes. Rows
/// that lie in one piece and are short stay in registers between the passes.
namespace ddp::kernels {

template <class T>
struct SoftmaxForward {
  using C = Compute<T>;
  using Op = ExpSum<C>;
  using Item = C;  // what is kept of an element between the passes
  const T* x;
  T* y;
  bool logarithm;

  __device__ Item read(std::int64_t at) const { return load_of(x[at]); }
  static __device__ Item outside() { return -infinity_of<C>(); }
  __device__ void add(typename Op::State& state, Item item) const { Op::add(state, item); }
  struct Result {
    C largest;
    C scale;  // the sum, or its logarithm
  };
  __device__ Result finish(typename Op::State state) const {
    const C sum = Op::total(state);
    return {state.largest, logarithm ? log_of(sum) : sum};
  }
  __device__ void write(std::int64_t at, Item item, const Result& result) const {
    const C above = item - result.largest;
    y[at] = store_of<T>(logarithm ? above - result.scale : exp_of(above) / result.scale);
  }
};

template <class T>
struct SoftmaxBackward {
  using C = Compute<T>;
  using Op = SumOf<C>;
  struct Item {
    C grad;
    C y;
  };
  const T* grad;
  const T* y;
  T* x_grad;
  bool logarithm;

  __device__ Item read(std::int64_t at) const { return {load_of(grad[at]), load_of(y[at])}; }
  static __device__ Item outside() { return {0, 0}; }
  __device__ void add(C& state, const Item& item) const { state += logarithm ? item.grad : item.grad * item.y; }
  using Result = C;
  __device__ Result finish(C state) const { return state; }
  __device__ void write(std::int64_t at, const Item& item, C sum) const {
    x_grad[at] = store_of<T>(logarithm ? item.grad - exp_of(item.y) * sum : item.y * (item.grad - sum));
  }
};

inline constexpr unsigned kRowThreads = 256;
inline constexpr unsigned kLongRowThreads = 512;
inline constexpr std::int64_t kShortRow = 1024;  // 32 lanes with 32 elements each

/// `lanes` threads a row, of which each holds up to Items elements.
template <int Items, class Body>
__global__ void __launch_bounds__(kRowThreads)
    softmax_short_rows(Body body, std::int64_t rows, int length, unsigned lanes) {
  using Op = typename Body::Op;
  const unsigned lane = threadIdx.x & (lanes - 1);
  const unsigned rows_in_block = kRowThreads / lanes;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * rows_in_block;
  // The loop is one of the block, so that all lanes of a warp merge together.
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * rows_in_block; first < rows; first += step) {
    const std::int64_t row = first + threadIdx.x / lanes;
    const int count = row < rows ? length : 0;
    const std::int64_t base = row * length;
    typename Body::Item items[Items];
    typename Op::State state = Op::none();
#pragma unroll
    for (int i = 0; i < Items; ++i) {
      const int at = static_cast<int>(lane + i * lanes);
      items[i] = at < count ? body.read(base + at) : Body::outside();
    }
#pragma unroll
    for (int i = 0; i < Items; ++i) body.add(state, items[i]);
    const auto result = body.finish(merged_lanes<Op>(state, lanes));
#pragma unroll
    for (int i = 0; i < Items; ++i) {
      const int at = static_cast<int>(lane + i * lanes);
      if (at < count) body.write(base + at, items[i], result);
    }
  }
}

/// A block a row, which is read twice.
template <class Body>
__global__ void __launch_bounds__(kLongRowThreads)
    softmax_long_rows(Body body, std::int64_t rows, std::int64_t length) {
  using Op = typename Body::Op;
  __shared__ typename Op::State room[32];
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int64_t base = row * length;
    typename Op::State state = Op::none();
#pragma unroll 4
    for (std::int64_t i = threadIdx.x; i < length; i += kLongRowThreads) body.add(state, body.read(base + i));
    const auto result = body.finish(merged_block<Op>(state, room));
#pragma unroll 4
    for (std::int64_t i = threadIdx.x; i < length; i += kLongRowThreads) {
      body.write(base + i, body.read(base + i), result);
    }
  }
}

/// inner > 1: neighbouring threads take neighbouring columns, and `parts` of them share a column's length.
template <class Body>
__global__ void __launch_bounds__(kRowThreads)
    softmax_columns(Body body, std::int64_t columns, std::int64_t length, std::int64_t inner, unsigned parts) {
  using Op = typename Body::Op;
  __shared__ typename Op::State room[kRowThreads];
  const unsigned wide = kRowThreads / parts;
  const unsigned part = threadIdx.x / wide;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * wide;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * wide; first < columns; first += step) {
    const std::int64_t column = first + threadIdx.x % wide;
    const std::int64_t count = column < columns ? length : 0;
    const std::int64_t base = column / inner * length * inner + column % inner;
    typename Op::State state = Op::none();
#pragma unroll 4
    for (std::int64_t i = part; i < count; i += parts) body.add(state, body.read(base + i * inner));
    if (parts > 1) {
      room[threadIdx.x] = state;
      __syncthreads();
      state = room[threadIdx.x % wide];
      for (unsigned p = 1; p < parts; ++p) state = Op::merged(state, room[p * wide + threadIdx.x % wide]);
      __syncthreads();
    }
    const auto result = body.finish(state);
#pragma unroll 4
    for (std::int64_t i = part; i < count; i += parts) {
      body.write(base + i * inner, body.read(base + i * inner), result);
    }
  }
}

template <class Body>
cudaError_t launch_softmax(const Body& body, std::int64_t outer, std::int64_t length, std::int64_t inner,
                           cudaStream_t stream) {
  if (outer < 0 || length < 0 || inner < 0) return cudaErrorInvalidValue;
  if (outer == 0 || length == 0 || inner == 0) return cudaSuccess;
  if (inner > 1) {
    const std::int64_t columns = outer * inner;
    // With columns enough for the device, whole lines matter more than a column's time.
    const unsigned parts = power_of_two_from(length / 8, columns >= 65536 ? 8 : 32);
    softmax_columns<<<blocks_of(columns, kRowThreads / parts), kRowThreads, 0, stream>>>(body, columns, length, inner,
                                                                                         parts);
  } else if (length <= 128) {
    const unsigned lanes = power_of_two_from((length + 3) / 4, 32);
    softmax_short_rows<4><<<blocks_of(outer, kRowThreads / lanes), kRowThreads, 0, stream>>>(
        body, outer, static_cast<int>(length), lanes);
  } else if (length <= kShortRow) {
    softmax_short_rows<32>
        <<<blocks_of(outer, kRowThreads / 32), kRowThreads, 0, stream>>>(body, outer, static_cast<int>(length), 32);
  } else {
    softmax_long_rows<<<blocks_of(outer, 1), kLongRowThreads, 0, stream>>>(body, outer, length);
  }
  return cudaGetLastError();
}

}  // namespace ddp::kernels
