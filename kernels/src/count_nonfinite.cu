#include "ddp_kernels/reduce.h"
#include "sum.cuh"

namespace ddp::kernels {

cudaError_t count_nonfinite(std::int64_t* out, const ConstArray& x, const Sizes& sizes, Type type, void* scratch,
                            std::size_t* scratch_bytes, cudaStream_t stream) {
  SumPlan plan;
  if (!plan.set(sizes, x.strides)) return cudaErrorInvalidValue;
  return with_floating(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    return launch_sum<NonFinite<T>, std::int64_t, T>(plan, out, x.data, false, scratch, scratch_bytes, stream);
  });
}

}  // namespace ddp::kernels
