#pragma once

#include <cublasLt.h>

#include "ddp/core/device.h"

/// cuBLASLt: its handles and its errors.
namespace ddp::core::cuda {

/// The device's handle, made at first use. cuBLASLt handles may be used by many threads at once. Never destroyed: that
/// needs the device, which may be gone when a process ends.
cublasLtHandle_t cublas_handle(Device device);

/// Throws DeviceError: "cublasLtMatmul(...): an invalid value ... (CUBLAS_STATUS_INVALID_VALUE, 7) at file.cpp:12".
[[noreturn]] void fail_cublas(cublasStatus_t status, const char* expression, const char* file, int line);

}  // namespace ddp::core::cuda

/// Runs a cuBLASLt call and throws DeviceError when it fails.
#define DDP_CUBLAS_CHECK(expression)                                                      \
  do {                                                                                    \
    const cublasStatus_t ddp_cublas_status = (expression);                                \
    if (ddp_cublas_status != CUBLAS_STATUS_SUCCESS) [[unlikely]] {                        \
      ::ddp::core::cuda::fail_cublas(ddp_cublas_status, #expression, __FILE__, __LINE__); \
    }                                                                                     \
  } while (false)
