#include "sum.cuh"

#include "ddp_kernels/reduce.h"

namespace ddp::kernels {

cudaError_t sum(const Array& out, const Sizes& out_sizes, const ConstArray& x, const Sizes& sizes, Type type,
                bool accumulate, void* scratch, std::size_t* scratch_bytes, cudaStream_t stream) {
  SumPlan plan;
  if (!plan.set(out_sizes, out.strides, sizes, x.strides)) return cudaErrorInvalidValue;
  return with_type(type, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    using Out = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;
    return launch_sum<Element<T>, Out, T>(plan, out.data, x.data, accumulate, scratch, scratch_bytes, stream);
  });
}

}  // namespace ddp::kernels
