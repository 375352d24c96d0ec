#pragma once

#include "reduce.cuh"

/// Sums of something of each element.
namespace ddp::kernels {

/// The type that sums are kept in.
template <class T>
using SumOf = std::conditional_t<std::is_integral_v<T>, std::int64_t, Compute<T>>;

/// What is added: the element, its square, or whether it is no finite number.
template <class T>
struct Element {
  using Sum = SumOf<T>;
  static __device__ Sum of(T value) { return Convert<Sum, T>::apply(value); }
};
template <class T>
struct Square {
  using Sum = double;  // does not overflow where float's square would
  static __device__ Sum of(T value) {
    const auto wide = static_cast<double>(Convert<Compute<T>, T>::apply(value));
    return wide * wide;
  }
};
template <class T>
struct NonFinite {
  using Sum = std::int64_t;
  static __device__ Sum of(T value) { return isfinite(Convert<Compute<T>, T>::apply(value)) ? 0 : 1; }
};

struct SumPlan {
  Walk<2> kept;     // results: of x and of out
  Walk<1> reduced;  // of x; in packs when width is not 1
  Mapping mapping;
  int width = 1;
  std::int64_t length = 0;  // reduced elements (packs) of one part
  std::int64_t parts = 1;

  bool set(const Sizes& out_sizes, const Strided& out, const Sizes& sizes, const Strided& x) {
    if (out_sizes.rank != sizes.rank) return false;
    Sizes stay = sizes;
    Sizes go = sizes;
    for (int d = 0; d < sizes.rank && d < kMaxRank; ++d) {
      if (sizes.sizes[d] <= 0 || (out_sizes.sizes[d] != sizes.sizes[d] && out_sizes.sizes[d] != 1)) return false;
      (out_sizes.sizes[d] == sizes.sizes[d] ? go : stay).sizes[d] = 1;
    }
    return kept.set(stay, {&x, &out}, true) && reduced.set(go, {&x}, true);
  }

  /// All elements to one result.
  bool set(const Sizes& sizes, const Strided& x) {
    Sizes one = sizes;
    for (int d = 0; d < sizes.rank && d < kMaxRank; ++d) one.sizes[d] = 1;
    return set(one, Strided{}, sizes, x);
  }

  /// Deals out the work. `pack` elements of x, which begins at `address`, are read at a time where possible.
  void deal(int pack, const void* address, std::size_t bytes) {
    const int last = reduced.rank - 1;
    const std::int64_t run = reduced.rank == 0 ? 1 : reduced.sizes[last];
    const std::int64_t step = reduced.rank == 0 ? 1 : reduced.strides[0][last];
    const bool closer = kept.rank == 0 || (reduced.rank > 0 && step < kept.strides[0][kept.rank - 1]);
    mapping.set(kept.count, reduced.count, run, closer);
    if (pack > 1 && mapping.inner && reduced.rank > 0 && step == 1 && run % pack == 0 && multiples(pack) &&
        reinterpret_cast<std::uintptr_t>(address) % (bytes * pack) == 0) {
      width = pack;
      reduced.sizes[last] /= pack;
      reduced.strides[0][last] *= pack;
      reduced.count /= pack;
      reduced.finish();
      mapping.set(kept.count, reduced.count, reduced.sizes[last] * 16, true);
    }
    constexpr std::int64_t kAtOnce = 32;    // elements that a thread takes before another part is worth a launch
    constexpr std::int64_t kLeast = 16;     // elements of a thread in one part
    constexpr std::int64_t kBlocks = 1024;  // that fill a large device, as a constant: results must not depend on it
    const std::int64_t of_thread = (reduced.count + mapping.lanes - 1) / mapping.lanes;
    length = reduced.count;
    if (of_thread <= kAtOnce || mapping.blocks > kBlocks / 2) return;
    const std::int64_t most = (of_thread + kLeast - 1) / kLeast;
    const std::int64_t wanted = (kBlocks + mapping.blocks - 1) / mapping.blocks;
    parts = wanted < most ? wanted : most;
    length = (reduced.count + parts - 1) / parts;
    parts = (reduced.count + length - 1) / length;
  }

  /// The plan that adds the parts of this one, which lie as [parts][results].
  SumPlan second() const {
    SumPlan plan;
    plan.kept = kept;
    std::int64_t stride = 1;
    for (int d = kept.rank - 1; d >= 0; --d) {
      plan.kept.strides[0][d] = stride;
      stride *= kept.sizes[d];
    }
    plan.reduced.rank = 1;
    plan.reduced.count = parts;
    plan.reduced.sizes[0] = parts;
    plan.reduced.strides[0][0] = kept.count;
    plan.mapping.set(kept.count, parts, parts, kept.count == 1);
    plan.length = parts;
    return plan;
  }

 private:
  bool multiples(int pack) const {
    for (int d = 0; d + 1 < reduced.rank; ++d) {
      if (reduced.strides[0][d] % pack != 0) return false;
    }
    for (int d = 0; d < kept.rank; ++d) {
      if (kept.strides[0][d] % pack != 0) return false;
    }
    return true;
  }
};

template <class Of, class T, int Width>
__device__ typename Of::Sum pack_sum(const T* from) {
  using Sum = typename Of::Sum;
  const auto pack = *reinterpret_cast<const Pack<T, Width>*>(from);
  Sum sums[Width];
#pragma unroll
  for (int w = 0; w < Width; ++w) sums[w] = Of::of(pack.values[w]);
#pragma unroll
  for (int half = Width / 2; half > 0; half /= 2) {
#pragma unroll
    for (int w = 0; w < half; ++w) sums[w] += sums[w + half];
  }
  return sums[0];
}

/// Results of part blockIdx.y go to `partial` [parts][results] when it is given, else to `out`.
template <class Of, class Out, class T, int Width>
__global__ void __launch_bounds__(kReduceThreads)
    sum_kernel(Out* out, const T* x, SumPlan plan, typename Of::Sum* partial, bool accumulate) {
  using Sum = typename Of::Sum;
  __shared__ Sum shared[kReduceThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const int lanes = plan.mapping.lanes;
  const int lane = plan.mapping.lane_of(thread);
  const std::int64_t result =
      static_cast<std::int64_t>(blockIdx.x) * plan.mapping.kept + plan.mapping.result_of(thread);
  const bool live = result < plan.kept.count;
  std::int64_t at[2] = {};
  Sum sum{};
  if (live) {
    plan.kept.offsets(result, at);
    const T* from = x + at[0];
    std::int64_t r = blockIdx.y * plan.length;
    const std::int64_t end = r + plan.length < plan.reduced.count ? r + plan.length : plan.reduced.count;
    r += lane;
    constexpr int kUnroll = 4;
    Sum sums[kUnroll] = {};
    for (; r + (kUnroll - 1) * lanes < end; r += kUnroll * lanes) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        std::int64_t offset[1];
        plan.reduced.offsets(r + u * lanes, offset);
        sums[u] += pack_sum<Of, T, Width>(from + offset[0]);
      }
    }
    for (; r < end; r += lanes) {
      std::int64_t offset[1];
      plan.reduced.offsets(r, offset);
      sums[0] += pack_sum<Of, T, Width>(from + offset[0]);
    }
    sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
  if (plan.mapping.inner) {
    const int together = lanes < 32 ? lanes : 32;
    for (int half = together / 2; half > 0; half /= 2) sum += __shfl_down_sync(0xffffffffU, sum, half, together);
    if (lanes > 32) {  // one result has lanes / 32 whole warps
      if (thread % 32 == 0) shared[thread / 32] = sum;
      __syncthreads();
      if (lane == 0) {
        for (int warp = 1; warp < lanes / 32; ++warp) sum += shared[thread / 32 + warp];
      }
    }
  } else if (lanes > 1) {
    shared[thread] = sum;
    for (int half = lanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane < half) shared[thread] += shared[thread + half * plan.mapping.kept];
    }
    sum = shared[thread];
  }
  if (!live || lane != 0) return;
  if (partial != nullptr) {
    partial[blockIdx.y * plan.kept.count + result] = sum;
  } else {
    Out* to = out + at[1];
    *to = Convert<Out, Sum>::apply(accumulate ? Convert<Sum, Out>::apply(*to) + sum : sum);
  }
}

/// Runs `plan`, which is set, over x; see reduce.h for the scratch memory.
template <class Of, class Out, class T>
cudaError_t launch_sum(SumPlan& plan, void* out, const void* x, bool accumulate, void* scratch,
                       std::size_t* scratch_bytes, cudaStream_t stream) {
  using Sum = typename Of::Sum;
  constexpr int kWidth = std::is_integral_v<T> ? 1 : 16 / sizeof(T);  // whole numbers are rare: less to compile
  plan.deal(kWidth, x, sizeof(T));
  const std::size_t needed = plan.parts == 1 ? 0 : sizeof(Sum) * static_cast<std::size_t>(plan.parts * plan.kept.count);
  if (needed > *scratch_bytes) {
    *scratch_bytes = needed;
    return cudaSuccess;
  }
  *scratch_bytes = needed;
  Sum* partial = needed == 0 ? nullptr : static_cast<Sum*>(scratch);
  const dim3 grid(static_cast<unsigned>(plan.mapping.blocks), static_cast<unsigned>(plan.parts));
  const auto launch = [&](auto width) {
    sum_kernel<Of, Out, T, decltype(width)::value><<<grid, kReduceThreads, 0, stream>>>(
        static_cast<Out*>(out), static_cast<const T*>(x), plan, partial, accumulate);
  };
  if (kWidth > 1 && plan.width > 1) {
    launch(std::integral_constant<int, kWidth>{});
  } else {
    launch(std::integral_constant<int, 1>{});
  }
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess || partial == nullptr) return error;
  const SumPlan second = plan.second();
  sum_kernel<Element<Sum>, Out, Sum, 1><<<static_cast<unsigned>(second.mapping.blocks), kReduceThreads, 0, stream>>>(
      static_cast<Out*>(out), partial, second, nullptr, accumulate);
  return cudaGetLastError();
}

}  // namespace ddp::kernels
