#pragma once

#include "ddp_kernels/norm.h"
#include "rows.cuh"

/// What the normalisations share: sums whose states merge in a fixed order, and loads of a thread's pack.
namespace ddp::kernels {

inline constexpr unsigned kNormThreads = 256;
inline constexpr unsigned kNormWarps = kNormThreads / 32;

template <class T>
inline constexpr int kNormWidth = 16 / sizeof(T);

/// Count, mean and sum of squared distances to it (Chan, Golub and LeVeque 1979). Kernels subtract one of the numbers
/// from all of them first, so that a mean far from zero costs no accuracy and equal numbers have exactly no variance.
template <class C>
struct Moments {
  C count;
  C mean;
  C squares;

  template <int Width>
  __device__ void add(const C (&values)[Width], C pivot) {
    C m = values[0] - pivot;
#pragma unroll
    for (int w = 1; w < Width; ++w) m += values[w] - pivot;
    m *= C{1} / Width;
    C q = 0;
#pragma unroll
    for (int w = 0; w < Width; ++w) {
      const C d = values[w] - pivot - m;
      q += d * d;
    }
    const C total = count + Width;
    const C share = Width / total;
    const C distance = m - mean;
    mean += distance * share;
    squares += q + distance * distance * count * share;
    count = total;
  }
  __device__ void merge(const Moments& other) {
    const C total = count + other.count;
    const C share = total > 0 ? other.count / total : 0;
    const C distance = other.mean - mean;
    mean += distance * share;
    squares += other.squares + distance * distance * count * share;
    count = total;
  }
  __device__ Moments down(unsigned distance) const {
    return {__shfl_down_sync(~0U, count, distance), __shfl_down_sync(~0U, mean, distance),
            __shfl_down_sync(~0U, squares, distance)};
  }
  __device__ Moments first() const {
    return {__shfl_sync(~0U, count, 0), __shfl_sync(~0U, mean, 0), __shfl_sync(~0U, squares, 0)};
  }
};

/// Sum of a gradient and of its product with the normalised x.
template <class C>
struct GradSums {
  C sum;
  C product;

  __device__ void add(C gradient, C normal) {
    sum += gradient;
    product += gradient * normal;
  }
  __device__ void merge(const GradSums& other) {
    sum += other.sum;
    product += other.product;
  }
  __device__ GradSums down(unsigned distance) const {
    return {__shfl_down_sync(~0U, sum, distance), __shfl_down_sync(~0U, product, distance)};
  }
  __device__ GradSums first() const { return {__shfl_sync(~0U, sum, 0), __shfl_sync(~0U, product, 0)}; }
};

/// The states of a warp merged, in its first lane.
template <class State>
__device__ State merged_down(State state) {
#pragma unroll
  for (unsigned distance = 16; distance > 0; distance /= 2) state.merge(state.down(distance));
  return state;
}

/// The states of a block of kNormThreads merged, in all threads. `room` is free again after the next
/// __syncthreads.
template <class State>
__device__ State merged_everywhere(State state, State (&room)[kNormWarps]) {
  state = merged_down(state);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = state;
  __syncthreads();
  state = room[0];
#pragma unroll
  for (unsigned w = 1; w < kNormWarps; ++w) state.merge(room[w]);
  return state;
}

/// Width elements as numbers: one load of `from`, which must be aligned where Width is over 1.
template <int Width, class T>
__device__ void load_pack(const T* from, Compute<T> (&values)[Width]) {
  const Pack<T, Width> pack = *reinterpret_cast<const Pack<T, Width>*>(from);
#pragma unroll
  for (int w = 0; w < Width; ++w) values[w] = load_of(pack.values[w]);
}
template <int Width, class T>
__device__ void store_pack(T* to, const Compute<T> (&values)[Width]) {
  Pack<T, Width> pack;
#pragma unroll
  for (int w = 0; w < Width; ++w) pack.values[w] = store_of<T>(values[w]);
  *reinterpret_cast<Pack<T, Width>*>(to) = pack;
}
/// Width numbers in loads of 16 bytes.
template <int Width, class C>
__device__ void load_numbers(const C* from, C (&values)[Width]) {
  constexpr int kPart = Width * sizeof(C) > 16 ? 16 / sizeof(C) : Width;
#pragma unroll
  for (int begin = 0; begin < Width; begin += kPart) {
    const Pack<C, kPart> pack = *reinterpret_cast<const Pack<C, kPart>*>(from + begin);
#pragma unroll
    for (int w = 0; w < kPart; ++w) values[begin + w] = pack.values[w];
  }
}

inline bool on_16_bytes(std::initializer_list<const void*> addresses) {
  for (const void* address : addresses) {
    if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0) return false;
  }
  return true;
}

}  // namespace ddp::kernels
