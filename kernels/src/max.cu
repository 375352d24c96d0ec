#include "ddp_kernels/reduce.h"
#include "reduce.cuh"

namespace ddp::kernels {
namespace {

constexpr std::int64_t kNone = -1;

template <class C>
struct Best {
  C value{};
  std::int64_t index = kNone;

  __device__ static bool is_nan(C x) {
    if constexpr (std::is_floating_point_v<C>) {
      return x != x;
    } else {
      return false;
    }
  }
  /// A total order, so that it does not matter in which order elements are met: NaN above numbers, then the larger,
  /// then the one with the lower index.
  __device__ bool loses_to(const Best& other) const {
    if (other.index == kNone) return false;
    if (index == kNone) return true;
    if (is_nan(value) != is_nan(other.value)) return is_nan(other.value);
    if (!is_nan(value) && value != other.value) return value < other.value;
    return other.index < index;
  }
};

struct MaxPlan {
  Walk<3> kept;  // results: of x, values and indices
  Mapping mapping;
  std::int64_t elements = 0;
  std::int64_t step = 0;
};

template <class T>
__global__ void __launch_bounds__(kReduceThreads)
    max_kernel(T* values, std::int64_t* indices, const T* x, MaxPlan plan) {
  using C = Compute<T>;
  __shared__ C shared_values[kReduceThreads];
  __shared__ std::int64_t shared_indices[kReduceThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const int lanes = plan.mapping.lanes;
  const int lane = plan.mapping.lane_of(thread);
  const int mine = plan.mapping.result_of(thread);
  const std::int64_t result = static_cast<std::int64_t>(blockIdx.x) * plan.mapping.kept + mine;
  const bool live = result < plan.kept.count;
  std::int64_t at[3] = {};
  Best<C> best;
  if (live) {
    plan.kept.offsets(result, at);
    const T* from = x + at[0];
#pragma unroll 4
    for (std::int64_t r = lane; r < plan.elements; r += lanes) {
      const Best<C> found{Convert<C, T>::apply(from[r * plan.step]), r};
      if (best.loses_to(found)) best = found;
    }
  }
  if (lanes > 1) {
    const int slot = lane * plan.mapping.kept + mine;
    shared_values[slot] = best.value;
    shared_indices[slot] = best.index;
    for (int half = lanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane < half) {
        const int other = slot + half * plan.mapping.kept;
        const Best<C> found{shared_values[other], shared_indices[other]};
        if (best.loses_to(found)) {
          best = found;
          shared_values[slot] = best.value;
          shared_indices[slot] = best.index;
        }
      }
    }
  }
  if (!live || lane != 0) return;
  values[at[1]] = x[at[0] + best.index * plan.step];
  indices[at[2]] = best.index;
}

}  // namespace

cudaError_t max(const Array& values, const Array& indices, const ConstArray& x, const Sizes& sizes, int dim, Type type,
                cudaStream_t stream) {
  if (dim < 0 || dim >= sizes.rank || sizes.rank > kMaxRank || sizes.sizes[dim] <= 0) return cudaErrorInvalidValue;
  MaxPlan plan;
  Sizes stay = sizes;
  stay.sizes[dim] = 1;
  if (!plan.kept.set(stay, {&x.strides, &values.strides, &indices.strides}, true)) return cudaErrorInvalidValue;
  if (plan.kept.count == 0) return cudaSuccess;
  plan.elements = sizes.sizes[dim];
  plan.step = x.strides.strides[dim];
  const bool closer = plan.kept.rank == 0 || plan.step < plan.kept.strides[0][plan.kept.rank - 1];
  plan.mapping.set(plan.kept.count, plan.elements, plan.elements, closer);
  return with_type(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    max_kernel<T><<<static_cast<unsigned>(plan.mapping.blocks), kReduceThreads, 0, stream>>>(
        static_cast<T*>(values.data), static_cast<std::int64_t*>(indices.data), static_cast<const T*>(x.data), plan);
    return cudaGetLastError();
  });
}

}  // namespace ddp::kernels
