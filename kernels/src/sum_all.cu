// Sums over all elements for gradient norms and checks.
#include "ddp_kernels/reduce.h"
#include "sum.cuh"

namespace ddp::kernels {
namespace {

bool set_all(SumPlan& plan, const ConstArray& x, const Sizes& sizes) {
  Sizes one = sizes;
  for (int d = 0; d < sizes.rank && d < kMaxRank; ++d) one.sizes[d] = 1;
  return plan.set(one, Strided{}, sizes, x.strides);
}

}  // namespace

cudaError_t sum_of_squares(double* out, const ConstArray& x, const Sizes& sizes, Type type, void* scratch,
                           std::size_t* scratch_bytes, cudaStream_t stream) {
  SumPlan plan;
  if (!set_all(plan, x, sizes)) return cudaErrorInvalidValue;
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    return launch_sum<Square<T>, double, T>(plan, out, x.data, false, scratch, scratch_bytes, stream);
  });
}

cudaError_t count_nonfinite(std::int64_t* out, const ConstArray& x, const Sizes& sizes, Type type, void* scratch,
                            std::size_t* scratch_bytes, cudaStream_t stream) {
  SumPlan plan;
  if (!set_all(plan, x, sizes)) return cudaErrorInvalidValue;
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    return launch_sum<NonFinite<T>, std::int64_t, T>(plan, out, x.data, false, scratch, scratch_bytes, stream);
  });
}

}  // namespace ddp::kernels
