#pragma once

#include <cudnn.h>

#include <memory>

#include "ddp/core/stream.h"

/// cuDNN: its handles and its errors. Only in a build with cuDNN.
namespace ddp::core::cuda {

/// What a room keeps beside a handle because it belongs to it (built plans).
class CudnnExtension {
 public:
  virtual ~CudnnExtension() = default;
};

/// A handle of one thread and one device at a time.
struct CudnnContext {
  cudnnHandle_t handle = nullptr;
  std::unique_ptr<CudnnExtension> extension;
  CUstream_st* stream = nullptr;
  bool has_stream = false;
};

/// The calling thread's context for the stream's device, with its work going to that stream. Made at first use; when
/// a thread ends, its contexts go to threads that come later. Never destroyed, as for cublas_handle.
CudnnContext& cudnn_context(StreamView stream);

/// Throws DeviceError: "cudnnBackendExecute(...): CUDNN_STATUS_BAD_PARAM (2000) at file.cpp:12: what cuDNN adds".
[[noreturn]] void fail_cudnn(cudnnStatus_t status, const char* expression, const char* file, int line);

}  // namespace ddp::core::cuda

/// Runs a cuDNN call and throws DeviceError when it fails.
#define DDP_CUDNN_CHECK(expression)                                                     \
  do {                                                                                  \
    const cudnnStatus_t ddp_cudnn_status = (expression);                                \
    if (ddp_cudnn_status != CUDNN_STATUS_SUCCESS) [[unlikely]] {                        \
      ::ddp::core::cuda::fail_cudnn(ddp_cudnn_status, #expression, __FILE__, __LINE__); \
    }                                                                                   \
  } while (false)
