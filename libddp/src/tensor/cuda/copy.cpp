#include "ddp_kernels/elementwise.h"
#include "tensor/backend/copy_backend.h"
#include "tensor/cuda/kernel_call.h"

namespace ddp::raw {
namespace {

class CudaCopy final : public CopyBackend {
 public:
  void fill(const Tensor& x, double value) override {
    launch_kernel("kernels::fill", x.device(), [&](cudaStream_t stream) {
      return kernels::fill(x.data(), kernel_type(x), kernel_sizes(x), kernel_strides(x), value, stream);
    });
  }

  void copy(const Tensor& destination, const Tensor& source) override {
    launch_kernel("kernels::copy", destination.device(), [&](cudaStream_t stream) {
      return kernels::copy(destination.data(), kernel_type(destination), kernel_strides(destination), source.data(),
                           kernel_type(source), kernel_strides(source), kernel_sizes(destination), stream);
    });
  }
};

}  // namespace

CopyBackend& cuda_copy() {
  static CudaCopy backend;
  return backend;
}

}  // namespace ddp::raw
