#pragma once

#include "arithmetic.cuh"

/// What the kernels share that work row by row: groups of threads, and sums whose order is fixed.
namespace ddp::kernels {

template <class T>
__device__ Compute<T> load_of(T value) {
  return Convert<Compute<T>, T>::apply(value);
}
template <class T>
__device__ T store_of(Compute<T> value) {
  return Convert<T, Compute<T>>::apply(value);
}

template <class C>
__device__ C infinity_of() {
  if constexpr (sizeof(C) == 8) {
    return __longlong_as_double(0x7ff0000000000000LL);
  } else {
    return __int_as_float(0x7f800000);
  }
}
template <class C>
__device__ C nan_of() {
  if constexpr (sizeof(C) == 8) {
    return __longlong_as_double(0x7ff8000000000000LL);
  } else {
    return __int_as_float(0x7fc00000);
  }
}

/// The smallest power of two that is at least n, but not over `most` (a power of two).
inline unsigned power_of_two_from(std::int64_t n, unsigned most) {
  unsigned power = 1;
  while (power < most && static_cast<std::int64_t>(power) < n) power *= 2;
  return power;
}

/// Blocks for a loop over `count` items of which a block takes `each` at a time.
inline unsigned blocks_of(std::int64_t count, std::int64_t each) {
  constexpr std::int64_t kMostBlocks = 1 << 13;
  const std::int64_t blocks = (count + each - 1) / each;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks < kMostBlocks ? blocks : kMostBlocks);
}

__device__ inline float exchanged(float value, unsigned mask) { return __shfl_xor_sync(~0U, value, mask); }
__device__ inline double exchanged(double value, unsigned mask) { return __shfl_xor_sync(~0U, value, mask); }
__device__ inline std::int64_t exchanged(std::int64_t value, unsigned mask) {
  return static_cast<std::int64_t>(__shfl_xor_sync(~0U, static_cast<long long>(value), mask));
}

/// Merges the states of groups of `lanes` neighbours (a power of two, at most 32); all of them get the result.
/// Whole warps must call this together. `Op::merged(a, b)` is symmetric bit for bit, `Op::exchanged(a, mask)` is
/// the neighbour's.
template <class Op>
__device__ typename Op::State merged_lanes(typename Op::State state, unsigned lanes) {
  for (unsigned mask = 1; mask < lanes; mask *= 2) state = Op::merged(state, Op::exchanged(state, mask));
  return state;
}

/// The same over a block of whole warps, at most 1024 threads. `room` has 32 places and is free again on return.
template <class Op>
__device__ typename Op::State merged_block(typename Op::State state, typename Op::State* room) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned warps = blockDim.x / 32;
  state = merged_lanes<Op>(state, 32);
  if (warps == 1) return state;
  if (lane == 0) room[threadIdx.x / 32] = state;
  __syncthreads();
  state = merged_lanes<Op>(lane < warps ? room[lane] : Op::none(), 32);
  __syncthreads();
  return state;
}

/// A plain sum.
template <class C>
struct SumOf {
  using State = C;
  static __device__ State none() { return 0; }
  static __device__ State merged(State a, State b) { return a + b; }
  static __device__ State exchanged(State state, unsigned mask) { return kernels::exchanged(state, mask); }
};

/// Sum of exp(x - largest) and the largest, taken in one pass: what was summed is scaled when a larger x comes.
template <class C>
struct ExpSum {
  struct State {
    C largest;
    C sum;
  };
  static __device__ State none() { return {-infinity_of<C>(), 0}; }
  static __device__ void add(State& state, C x) {
    if (x == -infinity_of<C>()) return;  // adds nothing, and -inf - -inf would be NaN
    const C above = x - state.largest;
    const C scale = exp_of(-absolute(above));
    if (above > 0) {
      state.sum = state.sum * scale + 1;
      state.largest = x;
    } else {
      state.sum += scale;
    }
  }
  static __device__ State merged(State a, State b) {
    const C largest = a.largest > b.largest ? a.largest : b.largest;
    return {largest, part(a, largest) + part(b, largest)};
  }
  static __device__ State exchanged(State state, unsigned mask) {
    return {kernels::exchanged(state.largest, mask), kernels::exchanged(state.sum, mask)};
  }
  /// The sum of a whole row. +infinity has no place among the others: NaN.
  static __device__ C total(State state) { return state.largest == infinity_of<C>() ? nan_of<C>() : state.sum; }

 private:
  static __device__ C part(State state, C largest) {
    return state.largest == largest ? state.sum : state.sum * exp_of(state.largest - largest);
  }
};

}  // namespace ddp::kernels
