#pragma once

#include <cuda_runtime_api.h>

#include "ddp/core/error.h"

/// Turning CUDA runtime errors into DeviceError.
namespace ddp::core::cuda {

/// Throws DeviceError: "cudaMemcpyAsync(...): invalid argument (cudaErrorInvalidValue, 1) at file.cpp:12".
[[noreturn]] void fail_cuda(cudaError_t error, const char* expression, const char* file, int line);

/// True for the errors of a machine without a usable GPU: no or too old a driver (35), no device (100).
constexpr bool means_no_device(cudaError_t error) {
  return error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice;
}

}  // namespace ddp::core::cuda

/// Runs a CUDA runtime call, or a launch that returns cudaError_t, and throws DeviceError when it fails.
#define DDP_CUDA_CHECK(expression)                                                   \
  do {                                                                               \
    const cudaError_t ddp_cuda_error = (expression);                                 \
    if (ddp_cuda_error != cudaSuccess) [[unlikely]] {                                \
      ::ddp::core::cuda::fail_cuda(ddp_cuda_error, #expression, __FILE__, __LINE__); \
    }                                                                                \
  } while (false)
