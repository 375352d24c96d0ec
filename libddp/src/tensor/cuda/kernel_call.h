#pragma once

#include "core/cuda/check.h"
#include "core/cuda/device_guard.h"
#include "core/observer.h"
#include "ddp/core/stream.h"
#include "ddp/tensor/tensor.h"
#include "ddp_kernels/types.h"

/// From tensors to what the kernels take.
namespace ddp::raw {

static_assert(static_cast<int>(kernels::Type::float32) == static_cast<int>(DType::float32) &&
              static_cast<int>(kernels::Type::float64) == static_cast<int>(DType::float64) &&
              static_cast<int>(kernels::Type::float16) == static_cast<int>(DType::float16) &&
              static_cast<int>(kernels::Type::bfloat16) == static_cast<int>(DType::bfloat16) &&
              static_cast<int>(kernels::Type::int32) == static_cast<int>(DType::int32) &&
              static_cast<int>(kernels::Type::int64) == static_cast<int>(DType::int64) &&
              static_cast<int>(kernels::Type::uint8) == static_cast<int>(DType::uint8) &&
              static_cast<int>(kernels::Type::boolean) == static_cast<int>(DType::boolean));
static_assert(kernels::kMaxRank == Dims::kMaxRank);

inline kernels::Type kernel_type(const Tensor& x) { return static_cast<kernels::Type>(x.dtype()); }

inline kernels::Sizes kernel_sizes(const Tensor& x) {
  kernels::Sizes result;
  for (const std::int64_t size : x.sizes()) result.sizes[result.rank++] = size;
  return result;
}

inline kernels::Strided kernel_strides(const Tensor& x) {
  kernels::Strided result;
  int at = 0;
  for (const std::int64_t stride : x.strides()) result.strides[at++] = stride;
  return result;
}

/// `x` as an argument with its strides: what a kernel writes, and what it reads.
inline kernels::Array kernel_array(const Tensor& x) { return {x.data(), kernel_strides(x)}; }
inline kernels::ConstArray kernel_input(const Tensor& x) { return {x.data(), kernel_strides(x)}; }

/// Tells the observer of one launch.
inline void report_launch(const char* what, Device device) {
  const core::Observer* observer = core::observer();
  if (observer != nullptr && observer->launch != nullptr) observer->launch(what, device);
}

/// One launch on the current stream of a device: makes the device current, reports the launch, and turns
/// its error into DeviceError. `launch(stream)` returns cudaError_t; `what` is a literal.
template <class Launch>
void launch_kernel(const char* what, Device device, const Launch& launch) {
  const core::cuda::DeviceGuard guard(device);
  const cudaError_t error = launch(current_stream(device).native());
  if (error != cudaSuccess) [[unlikely]] {
    core::cuda::fail_cuda(error, what, __FILE__, __LINE__);
  }
  report_launch(what, device);
}

}  // namespace ddp::raw
